/*-------------------------------------------------------------------------
 *
 * identity.c
 *		The description of a holder in the data of its znodes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "catalog/namespace.h"
#include "commands/dbcommands.h"
#include "common/string.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "backend/base/identity.h"
#include "backend/base/members.h"
#include "recipe/recipe.h"

#define MAX_HOST_NAME 255

/* Returns the text in UTF-8, palloc'd, or NULL if it cannot be converted. */
static char *
converted(const char *value, int length)
{
	int			encoding = GetDatabaseEncoding();
	Oid			conversion = FindDefaultConversionProc(encoding, PG_UTF8);
	int			size = length * MAX_CONVERSION_GROWTH + 1;
	char	   *utf8;

	if (!OidIsValid(conversion) || !pg_verify_mbstr(encoding, value, length, true))
		return NULL;
	utf8 = palloc(size);
	if (pg_do_encoding_conversion_buf(conversion, encoding, PG_UTF8,
									  (unsigned char *) value, length,
									  (unsigned char *) utf8, size, true) != length)
		return NULL;
	return utf8;
}

/*
 * Returns a name in UTF-8, which readers of the nodes expect.  Names of databases and
 * roles are shared by databases of all encodings, so they may have bytes that are invalid
 * in this database's encoding, or characters that UTF-8 lacks; those are replaced.
 */
static const char *
to_utf8(const char *value)
{
	int			encoding = GetDatabaseEncoding();
	int			length = strlen(value);
	char	   *utf8 = NULL;

	if (encoding == PG_SQL_ASCII || encoding == PG_UTF8)
	{
		if (pg_verify_mbstr(PG_UTF8, value, length, true))
			return value;
	}
	else
		utf8 = converted(value, length);
	if (utf8)
		return utf8;
	utf8 = pstrdup(value);
	for (char *c = utf8; *c; c++)
		if (IS_HIGHBIT_SET(*c))
			*c = '?';
	return utf8;
}

static void
add_member(StringInfo json, const char *name, const char *value)
{
	appendStringInfo(json, ",\"%s\":", name);
	escape_json(json, value ? to_utf8(value) : "");
}

char *
zklock_server_name(void)
{
	char		host[MAX_HOST_NAME + 1] = "";

	gethostname(host, MAX_HOST_NAME);
	return psprintf("%s:%d", host, PostPortNumber);
}

/*
 * The part that is the same for all locks, in UTF-8, and what it was built from.  A
 * database that is in use keeps its name; a role may be renamed.
 */
static char *lasting = NULL;
static Oid	lasting_user = InvalidOid;
static char *lasting_application = NULL;
static bool role_changed = false;

static void
on_role_change(Datum arg, int cache_id, uint32 hash)
{
	role_changed = true;
}

static void
forget_lasting(void)
{
	if (lasting)
		pfree(lasting);
	if (lasting_application)
		pfree(lasting_application);
	lasting = lasting_application = NULL;
}

static void
make_lasting(void)
{
	StringInfoData json;

	if (lasting_user == InvalidOid)
		CacheRegisterSyscacheCallback(AUTHOID, on_role_change, (Datum) 0);
	forget_lasting();
	lasting_user = GetSessionUserId();
	role_changed = false;
	initStringInfo(&json);
	/* Marks sessions of superusers, whose locks ordinary roles cannot revoke. */
	appendStringInfoString(&json, superuser_arg(MyProc->roleId)
						   ? ZKL_SUPERUSER_DATA : "{\"client\":\"zklock\",");
	appendStringInfoString(&json, "\"server\":");
	escape_json(&json, zklock_server_name());
	appendStringInfo(&json, ",\"pid\":%d", MyProcPid);
	add_member(&json, "datname", get_database_name(MyDatabaseId));
	add_member(&json, "usename", GetUserNameFromId(lasting_user, true));
	add_member(&json, "application_name", application_name);
	lasting_application = MemoryContextStrdup(TopMemoryContext, application_name);
	lasting = MemoryContextStrdup(TopMemoryContext, json.data);
}

char *
zklock_identity(void)
{
	if (lasting == NULL || role_changed || lasting_user != GetSessionUserId() ||
		strcmp(lasting_application, application_name) != 0)
		make_lasting();
	return psprintf("%s,\"since\":\"%s\"}", lasting,
					timestamptz_to_str(GetCurrentTimestamp()));
}

ZklockIdentity *
zklock_identity_read(const char *data, int length)
{
	ZklockIdentity *identity = palloc0(sizeof(ZklockIdentity));
	ZklockMembers members;
	struct
	{
		const char *name;
		char	  **value;
	}			texts[] = {
		{"server", &identity->server},
		{"datname", &identity->datname},
		{"usename", &identity->usename},
		{"application_name", &identity->application_name},
	};
	bool		any = false;

	for (int i = 0; i < (int) lengthof(texts); i++)
		*texts[i].value = "";
	zklock_members_begin(&members, data, length);
	while (zklock_members_next(&members))
	{
		any = true;
		for (int i = 0; i < (int) lengthof(texts); i++)
			if (strcmp(members.name, texts[i].name) == 0)
				*texts[i].value = pstrdup(members.value);
		if (strcmp(members.name, "pid") == 0)
			identity->pid = strtoint(members.value, NULL, 10);
	}
	return any ? identity : NULL;
}
