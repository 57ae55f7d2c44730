/*-------------------------------------------------------------------------
 *
 * identity.c
 *		The description of a holder in the data of its znodes.
 *
 * The data are printable ASCII: words that are separated by spaces, most of them
 * name=value with a percent-encoded value.
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
#include "storage/proc.h"
#include "utils/guc.h"

#include "backend/base/identity.h"
#include "backend/base/names.h"
#include "backend/base/syntax.h"
#include "recipe/recipe.h"

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
	/* Marks sessions of superusers, whose locks ordinary roles cannot revoke. */
	appendStringInfo(&data, "%sserver=%s pid=%d",
					 superuser_arg(MyProc->roleId) ? ZKL_SUPERUSER_DATA : "zklock ",
					 zklock_server_name(), MyProcPid);
	add_name(&data, "datname", get_database_name(MyDatabaseId));
	add_name(&data, "usename", GetUserNameFromId(GetSessionUserId(), true));
	add_name(&data, "application_name", application_name);
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
