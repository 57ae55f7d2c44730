/*-------------------------------------------------------------------------
 *
 * name_list.c
 *		The names of locks in a message: the first one, and how many more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/string.h"
#include "mb/pg_wchar.h"

#include "backend/base/name_list.h"

/* Does not ask for the conversion itself: that reads catalogs, and can fail. */
static bool
is_in_client_encoding(const char *text)
{
	int			encoding = pg_get_client_encoding();

	return encoding == PG_UTF8 || encoding == PG_SQL_ASCII ||
		encoding == GetDatabaseEncoding() || pg_is_ascii(text);
}

void
zklock_list_hold(ZklockNameList *list, const ZklockHold *hold)
{
	const char *name = is_in_client_encoding(hold->name.display)
		? hold->name.display : hold->name.encoded;

	if (list->n > 0 && hold->kind == ZKLOCK_SEMAPHORE && strcmp(name, list->name) == 0)
		return;
	if (list->n++ == 0)
		list->name = name;
}

const char *
zklock_list_text(const ZklockNameList *list)
{
	static char text[ZKLOCK_LIST_NAME_BYTES + 32];
	int			length = snprintf(text, sizeof(text), "\"%s\"", list->n > 0 ? list->name : "");

	if (list->n > 1)
		snprintf(text + length, sizeof(text) - length, " and %d %s",
				 list->n - 1, list->n == 2 ? "other" : "others");
	return text;
}
