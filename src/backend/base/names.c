/*-------------------------------------------------------------------------
 *
 * names.c
 *		Converts an SQL key into the name of a lock.
 *
 * Keys are taken in UTF-8 whatever the database's encoding, so that one name is one lock
 * everywhere, and percent-encoded.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "common/cryptohash.h"
#include "common/hashfn.h"
#include "common/sha2.h"
#include "common/string.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/builtins.h"

#include "backend/base/names.h"
#include "backend/base/syntax.h"

/*
 * A role that could compute a name with the hash of another name could block it, although
 * only on its own server.  PostgreSQL's hash functions can be inverted.
 */
uint64
zklock_name_hash(const char *encoded, size_t length)
{
	pg_cryptohash_ctx *context = pg_cryptohash_create(PG_SHA256);
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	uint64		hash;

	if (context == NULL || pg_cryptohash_init(context) < 0 ||
		pg_cryptohash_update(context, (const uint8 *) encoded, length) < 0 ||
		pg_cryptohash_final(context, digest, sizeof(digest)) < 0)
		elog(ERROR, "could not compute the SHA-256 hash of a lock name");
	pg_cryptohash_free(context);
	memcpy(&hash, digest, sizeof(hash));
	return pg_ntoh64(hash);
}

static void
name_error(const char *problem)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("lock name %s", problem),
			 errhint("Use a name of 1 to %d bytes in UTF-8.", ZKLOCK_MAX_NAME_BYTES)));
}

static char *
display_of(text *value, ZklockNameRoom *room)
{
	size_t		length = VARSIZE_ANY_EXHDR(value);

	if (length >= sizeof(room->display))
		return text_to_cstring(value);
	memcpy(room->display, VARDATA_ANY(value), length);
	room->display[length] = '\0';
	return room->display;
}

/*
 * Returns the text itself, or converted and palloc'd.  Raises 22021 for invalid bytes in a
 * SQL_ASCII database.  MULE_INTERNAL has no conversion: only ASCII is accepted there.
 */
static char *
to_utf8(const char *text)
{
	return pg_is_ascii(text) ? unconstify(char *, text) : pg_server_to_any(text, strlen(text), PG_UTF8);
}

char *
zklock_convert(const char *text, int length, int from, int to)
{
	int			size = length * MAX_CONVERSION_GROWTH + 1;
	char	   *copy;
	char	   *result;
	Oid			conversion;

	if (memchr(text, '\0', length) || pg_encoding_verifymbstr(from, text, length) != length)
		return NULL;
	copy = pnstrdup(text, length);
	if (from == to || from == PG_SQL_ASCII || to == PG_SQL_ASCII || pg_is_ascii(copy))
		return copy;
	conversion = FindDefaultConversionProc(from, to);
	if (!OidIsValid(conversion))
		return NULL;
	result = palloc(size);
	if (pg_do_encoding_conversion_buf(conversion, from, to, (unsigned char *) copy, length,
									  (unsigned char *) result, size, true) != length)
		return NULL;
	return result;
}

char *
zklock_given_name(const char *encoded)
{
	char	   *name = pstrdup(encoded);
	int			length = zklock_decode(name);
	char	   *given = zklock_convert(name, length, PG_UTF8, GetDatabaseEncoding());

	return given ? given : pstrdup(encoded);
}

/*
 * Returns whether the client's encoding has all characters of a text.  If it has not, the
 * client gets the error of the conversion, 22P05, instead of the one whose message has the text.
 */
static bool
is_in_client_encoding(const char *text)
{
	int			server = GetDatabaseEncoding();
	int			client = pg_get_client_encoding();
	int			length = strlen(text);

	if (client == server || client == PG_UTF8 || client == PG_SQL_ASCII || pg_is_ascii(text))
		return true;
	if (server == PG_SQL_ASCII)
		return pg_encoding_verifymbstr(client, text, length) == length;
	return zklock_convert(text, length, server, client) != NULL;
}

void
zklock_name_from_text(text *value, ZklockNameRoom *room, ZklockName *name)
{
	char	   *utf8;
	size_t		length;

	name->display = display_of(value, room);
	utf8 = to_utf8(name->display);
	length = strlen(utf8);
	if (length == 0)
		name_error("must not be empty");
	if (length > ZKLOCK_MAX_NAME_BYTES)
		name_error("is too long");

	name->encoded = room->encoded;
	zkl_encode_name(utf8, length, name->encoded);
	if (utf8 != name->display)
		pfree(utf8);
	if (!is_in_client_encoding(name->display))
		name->display = name->encoded;
	name->hash = hash_bytes((const unsigned char *) name->encoded, (int) strlen(name->encoded));
}

static const ZklockName *
next_of_array(ZklockNames *names)
{
	Datum		value;
	bool		is_null;

	CHECK_FOR_INTERRUPTS();
	if (names->iterator == NULL)
		names->iterator = array_create_iterator(names->array, 0, NULL);
	if (!array_iterate(names->iterator, &value, &is_null))
	{
		array_free_iterator(names->iterator);
		names->iterator = NULL;
		return NULL;
	}
	if (is_null)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("lock name must not be null"),
				 errhint("Remove NULL elements from the array of names.")));
	zklock_name_from_text(DatumGetTextPP(value), &names->room, &names->name);
	return &names->name;
}

const ZklockName *
zklock_names_next(ZklockNames *names)
{
	if (names->array)
		return next_of_array(names);
	names->passed = !names->passed;
	return names->passed ? &names->name : NULL;
}
