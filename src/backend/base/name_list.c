/*-------------------------------------------------------------------------
 *
 * name_list.c
 *		The names of locks in a message: the first few, and how many more.
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
zklock_list_hold(ZklockNameList *list, ZklockHold *hold)
{
	static uint64 last_id = 0;
	ZklockHold *first = hold->kind == ZKLOCK_SEMAPHORE
		? zklock_hold_find_permit(&hold->name, NULL) : hold;

	if (list->id == 0)
		list->id = ++last_id;
	if (first->in_list == list->id)
		return;
	first->in_list = list->id;
	if (list->n_names < ZKLOCK_LIST_NAMES)
		list->names[list->n_names++] = is_in_client_encoding(hold->name.display)
			? hold->name.display : hold->name.encoded;
	list->n++;
}

const char *
zklock_list_text(const ZklockNameList *list)
{
	static char text[ZKLOCK_LIST_BYTES];
	int			n_others = list->n - list->n_names;
	size_t		length = 0;

	text[0] = '\0';
	for (int i = 0; i < list->n_names; i++)
		length += snprintf(text + length, sizeof(text) - length, "%s\"%.*s\"",
						   i == 0 ? "" : ", ", ZKLOCK_LIST_NAME_BYTES, list->names[i]);
	if (n_others > 0)
		snprintf(text + length, sizeof(text) - length, " and %d %s",
				 n_others, n_others == 1 ? "other" : "others");
	return text;
}
