/*-------------------------------------------------------------------------
 *
 * names.c
 *		From an SQL key to the name of a lock.
 *
 * Text keys are taken as UTF-8 whatever the database's encoding, so that one
 * name is one lock everywhere, and percent-encoded.  Integer keys begin with
 * '#', which no encoded text does, so that the key spaces never meet.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"

#include "names.h"

static void
finish_name(ZklockName *name)
{
	name->hash = DatumGetUInt64(hash_any_extended((unsigned char *) name->encoded,
												  strlen(name->encoded), 0));
}

static void
name_error(const char *problem)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("lock name %s", problem),
			 errhint("A lock name has 1 to %d bytes in UTF-8.", ZKLOCK_MAX_NAME_BYTES)));
}

static char *
display_of(text *value, ZklockNameRoom *room)
{
	size_t		length = VARSIZE_ANY_EXHDR(value);

	if (room == NULL || length >= sizeof(room->display))
		return text_to_cstring(value);
	memcpy(room->display, VARDATA_ANY(value), length);
	room->display[length] = '\0';
	return room->display;
}

void
zklock_name_from_text(text *value, ZklockNameRoom *room, ZklockName *name)
{
	char	   *utf8;
	size_t		length;

	name->display = display_of(value, room);
	if (GetDatabaseEncoding() == PG_SQL_ASCII)
	{
		/* Nobody has checked these bytes yet. */
		pg_verify_mbstr(PG_UTF8, name->display, strlen(name->display), false);
		utf8 = name->display;
	}
	else
		utf8 = pg_server_to_any(name->display, strlen(name->display), PG_UTF8);
	length = strlen(utf8);
	if (length == 0)
		name_error("must not be empty");
	if (length > ZKLOCK_MAX_NAME_BYTES)
		name_error("is too long");

	name->encoded = room ? room->encoded : palloc(ZKL_ENCODED_SIZE(length));
	zkl_encode_name(utf8, length, name->encoded);
	finish_name(name);
}

/* Both forms of the name are the text in the room. */
static void
name_from_integers(ZklockNameRoom *room, ZklockName *name)
{
	name->encoded = name->display = room->display;
	finish_name(name);
}

void
zklock_name_from_int8(int64 key, ZklockNameRoom *room, ZklockName *name)
{
	room->display[0] = '#';
	pg_lltoa(key, &room->display[1]);
	name_from_integers(room, name);
}

void
zklock_name_from_int4(int32 key1, int32 key2, ZklockNameRoom *room, ZklockName *name)
{
	char	   *end = room->display;

	*end++ = '#';
	end += pg_ltoa(key1, end);
	*end++ = ',';
	pg_ltoa(key2, end);
	name_from_integers(room, name);
}

ZklockName *
zklock_names_from_array(ArrayType *array, int *n)
{
	Datum	   *values;
	bool	   *nulls;
	ZklockName *names;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, n);
	names = palloc(sizeof(ZklockName) * (*n + 1));
	for (int i = 0; i < *n; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("lock name must not be null"),
					 errhint("Remove NULL elements from the array of names.")));
		zklock_name_from_text(DatumGetTextPP(values[i]), NULL, &names[i]);
	}
	return names;
}

static int
compare(const void *a, const void *b)
{
	return strcmp(((const ZklockName *) a)->encoded,
				  ((const ZklockName *) b)->encoded);
}

const ZklockName *
zklock_names_distinct(const ZklockName *names, int *n)
{
	ZklockName *sorted;
	int			n_distinct = 0;

	if (*n < 2)
		return names;
	sorted = palloc(sizeof(ZklockName) * *n);

	memcpy(sorted, names, sizeof(ZklockName) * *n);
	qsort(sorted, *n, sizeof(ZklockName), compare);
	for (int i = 0; i < *n; i++)
		if (i == 0 || compare(&sorted[n_distinct - 1], &sorted[i]) != 0)
			sorted[n_distinct++] = sorted[i];
	*n = n_distinct;
	return sorted;
}
