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
#include "recipe/recipe.h"

#define MAX_NAME_BYTES 512

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
			 errhint("A lock name has 1 to %d bytes in UTF-8.", MAX_NAME_BYTES)));
}

void
zklock_name_from_text(text *value, ZklockName *name)
{
	char	   *utf8;
	size_t		length;

	name->display = text_to_cstring(value);
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
	if (length > MAX_NAME_BYTES)
		name_error("is too long");

	name->encoded = palloc(ZKL_ENCODED_SIZE(length));
	zkl_encode_name(utf8, length, name->encoded);
	finish_name(name);
}

void
zklock_name_from_int8(int64 key, ZklockName *name)
{
	name->encoded = name->display = psprintf("#" INT64_FORMAT, key);
	finish_name(name);
}

void
zklock_name_from_int4(int32 key1, int32 key2, ZklockName *name)
{
	name->encoded = name->display = psprintf("#%d,%d", key1, key2);
	finish_name(name);
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
		zklock_name_from_text(DatumGetTextPP(values[i]), &names[i]);
	}
	return names;
}

static int
compare(const void *a, const void *b)
{
	return strcmp(((const ZklockName *) a)->encoded,
				  ((const ZklockName *) b)->encoded);
}

ZklockName *
zklock_names_distinct(const ZklockName *names, int *n)
{
	ZklockName *sorted = palloc(sizeof(ZklockName) * (*n + 1));
	int			n_distinct = 0;

	memcpy(sorted, names, sizeof(ZklockName) * *n);
	qsort(sorted, *n, sizeof(ZklockName), compare);
	for (int i = 0; i < *n; i++)
		if (i == 0 || compare(&sorted[n_distinct - 1], &sorted[i]) != 0)
			sorted[n_distinct++] = sorted[i];
	*n = n_distinct;
	return sorted;
}
