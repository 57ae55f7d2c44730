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
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/timestamp.h"

#include "identity.h"

#define MAX_HOST_NAME 255

static void
add_member(StringInfo json, const char *name, const char *value)
{
	appendStringInfo(json, ",\"%s\":", name);
	escape_json(json, value ? value : "");
}

char *
zklock_server_name(void)
{
	char		host[MAX_HOST_NAME + 1] = "";

	gethostname(host, MAX_HOST_NAME);
	return psprintf("%s:%d", host, PostPortNumber);
}

char *
zklock_identity(void)
{
	StringInfoData json;

	initStringInfo(&json);
	appendStringInfoString(&json, "{\"client\":\"zklock\"");
	add_member(&json, "server", zklock_server_name());
	appendStringInfo(&json, ",\"pid\":%d", MyProcPid);
	add_member(&json, "datname", get_database_name(MyDatabaseId));
	add_member(&json, "usename", GetUserNameFromId(GetSessionUserId(), true));
	add_member(&json, "application_name", application_name);
	add_member(&json, "since", timestamptz_to_str(GetCurrentTimestamp()));
	appendStringInfoChar(&json, '}');
	return pg_server_to_any(json.data, json.len, PG_UTF8);
}
