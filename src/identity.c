/*-------------------------------------------------------------------------
 *
 * identity.c
 *		What our nodes tell about who holds them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "commands/dbcommands.h"
#include "common/string.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "identity.h"
#include "members.h"

#define MAX_HOST_NAME 255

/*
 * Names of databases and roles are shared by databases of all encodings, and may
 * have bytes that are nothing in this one.  Who reads our nodes expects UTF-8.
 */
static const char *
readable(const char *value)
{
	int			encoding = GetDatabaseEncoding();
	char	   *copy;

	if (encoding == PG_SQL_ASCII)
		encoding = PG_UTF8;
	if (pg_verify_mbstr(encoding, value, strlen(value), true))
		return value;
	copy = pstrdup(value);
	for (char *c = copy; *c; c++)
		if (IS_HIGHBIT_SET(*c))
			*c = '?';
	return copy;
}

static void
add_member(StringInfo json, const char *name, const char *value)
{
	appendStringInfo(json, ",\"%s\":", name);
	escape_json(json, value ? readable(value) : "");
}

char *
zklock_server_name(void)
{
	char		host[MAX_HOST_NAME + 1] = "";

	gethostname(host, MAX_HOST_NAME);
	return psprintf("%s:%d", host, PostPortNumber);
}

/*
 * What does not change from lock to lock, in UTF-8, and what it was made for.  A
 * database that is in use keeps its name; a role may get another one.
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
	appendStringInfoString(&json, "{\"client\":\"zklock\"");
	add_member(&json, "server", zklock_server_name());
	appendStringInfo(&json, ",\"pid\":%d", MyProcPid);
	add_member(&json, "datname", get_database_name(MyDatabaseId));
	add_member(&json, "usename", GetUserNameFromId(lasting_user, true));
	add_member(&json, "application_name", application_name);
	lasting_application = MemoryContextStrdup(TopMemoryContext, application_name);
	lasting = MemoryContextStrdup(TopMemoryContext,
								  pg_server_to_any(json.data, json.len, PG_UTF8));
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
