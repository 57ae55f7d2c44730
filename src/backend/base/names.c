/*-------------------------------------------------------------------------
 *
 * names.c
 *		Percent-encoded text: names of locks, and the holder in the data of its znodes.
 *
 * Keys are taken in UTF-8 whatever the database's encoding, so that one name is one lock
 * everywhere, and percent-encoded.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "common/cryptohash.h"
#include "common/hashfn.h"
#include "common/sha2.h"
#include "common/string.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "postmaster/postmaster.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "backend/base/names.h"
#include "backend/base/syntax.h"
#include "recipe/recipe.h"

/*
 * A role that could compute a name with the hash of another name could block it, although
 * only on its own server.  PostgreSQL's hash functions can be inverted.
 */
uint64
zklock_name_hash(const char *encoded, size_t length)
{
	static char last[64];		/* many sessions use one name again and again */
	static size_t last_length = 0;
	static uint64 hash;
	pg_cryptohash_ctx *context;
	uint8		digest[PG_SHA256_DIGEST_LENGTH];

	if (length > 0 && length == last_length && memcmp(encoded, last, length) == 0)
		return pg_ntoh64(hash);
	last_length = 0;
	context = pg_cryptohash_create(PG_SHA256);
	if (context == NULL || pg_cryptohash_init(context) < 0 ||
		pg_cryptohash_update(context, (const uint8 *) encoded, length) < 0 ||
		pg_cryptohash_final(context, digest, sizeof(digest)) < 0)
		elog(ERROR, "could not compute the SHA-256 hash of a lock name");
	pg_cryptohash_free(context);
	memcpy(&hash, digest, sizeof(hash));
	if (length <= sizeof(last))
	{
		memcpy(last, encoded, length);
		last_length = length;
	}
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

/*
 * Returns the text itself, or converted and palloc'd.  Raises 22021 for invalid bytes in a
 * SQL_ASCII database.  MULE_INTERNAL, which 19 does not have, has no conversion: only ASCII is
 * accepted there.
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
	int			length;

	if (client == server || client == PG_UTF8 || client == PG_SQL_ASCII || pg_is_ascii(text))
		return true;
	length = strlen(text);
	if (server == PG_SQL_ASCII)
		return pg_encoding_verifymbstr(client, text, length) == length;
	return zklock_convert(text, length, server, client) != NULL;
}

void
zklock_name_from_text(text *value, ZklockNameRoom *room, ZklockName *name)
{
	size_t		length = VARSIZE_ANY_EXHDR(value);
	char	   *utf8;

	if (length == 0)
		name_error("must not be empty");
	if (length >= sizeof(room->display))
		name_error("is too long");
	memcpy(room->display, VARDATA_ANY(value), length);
	room->display[length] = '\0';
	utf8 = to_utf8(room->display);
	if (utf8 != room->display)
		length = strlen(utf8);
	if (length > ZKLOCK_MAX_NAME_BYTES)
		name_error("is too long");

	name->display = room->display;
	name->encoded = room->encoded;
	length = zkl_encode_name(utf8, length, name->encoded);
	if (utf8 != name->display)
		pfree(utf8);
	if (!is_in_client_encoding(name->display))
		name->display = name->encoded;
	name->hash = hash_bytes((const unsigned char *) name->encoded, (int) length);
}

const ZklockName *
zklock_names_get(ZklockNames *names, int i)
{
	if (names->values == NULL)
		return &names->name;
	CHECK_FOR_INTERRUPTS();
	if (names->nulls[i])
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("lock name must not be null"),
				 errhint("Remove NULL elements from the array of names.")));
	zklock_name_from_text(DatumGetTextPP(names->values[i]), &names->room, &names->name);
	return &names->name;
}


/*
 * The data of znodes: words that are separated by spaces, most of them name=value with a
 * percent-encoded value.  So they are printable ASCII.
 */

#define MAX_HOST_NAME 255

const char *
zklock_server_name(void)
{
	static char server[MAX_HOST_NAME + sizeof(":65535")];

	if (server[0] == '\0')
	{
		gethostname(server, MAX_HOST_NAME);
		sprintf(server + strlen(server), ":%d", PostPortNumber);
	}
	return server;
}

/*
 * Adds a name, in UTF-8 if possible.  Databases of all encodings share the names of
 * databases and roles, so a name may have bytes that are invalid in this database's
 * encoding, or characters that UTF-8 lacks; then its bytes are added.
 */
static void
add_name(StringInfo data, const char *member, const char *name)
{
	char	   *utf8 = name ? zklock_convert(name, strlen(name), GetDatabaseEncoding(), PG_UTF8) : NULL;
	const char *value = utf8 ? utf8 : name ? name : "";

	appendStringInfo(data, " %s=", member);
	enlargeStringInfo(data, ZKL_ENCODED_SIZE(strlen(value)));
	zkl_encode_name(value, strlen(value), data->data + data->len);
	data->len += strlen(data->data + data->len);
}

char *
zklock_identity(void)
{
	StringInfoData data;

	initStringInfo(&data);
	/*
	 * Marks the sessions that only superusers may cancel, whose locks only they can revoke:
	 * those of superusers, and background workers without a role.
	 */
	appendStringInfo(&data, "%spid=%d",
					 !OidIsValid(MyProc->roleId) || superuser_arg(MyProc->roleId) ? ZKL_SUPERUSER_DATA : "zklock ",
					 MyProcPid);
	add_name(&data, "server", zklock_server_name());
	add_name(&data, "datname", get_database_name(MyDatabaseId));
	add_name(&data, "usename", GetUserNameFromId(GetSessionUserId(), true));
	add_name(&data, "application_name", application_name);
	/* The names may have been read from the catalogs; zk_lock_wait() waits without a snapshot. */
	InvalidateCatalogSnapshotConditionally();
	return data.data;
}

char *
zklock_identity_member(const char *data, int length, const char *member)
{
	char	   *words = pnstrdup(data, length);
	int			n = strlen(member);
	char	   *rest;

	for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		if (strncmp(word, member, n) == 0 && word[n] == '=' && word[n + 1] != '\0')
		{
			word[n + 1 + zklock_decode(word + n + 1)] = '\0';
			return word + n + 1;
		}
	return NULL;
}
