/*-------------------------------------------------------------------------
 *
 * name_list.c
 *		The names of locks in a message: the first few, and how many more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/base/name_list.h"
#include "backend/base/names.h"

/* No server encoding needs more than twice as many bytes as UTF-8. */
#define NAME_BYTES (2 * ZKLOCK_MAX_NAME_BYTES)

void
zklock_list_name(ZklockNameList *list, const char *display)
{
	for (int i = 0; i < list->n_listed; i++)
		if (strcmp(list->listed[i], display) == 0)
			return;
	if (list->n_listed < ZKLOCK_LISTED_NAMES)
		list->listed[list->n_listed++] = display;
	list->n++;
}

const char *
zklock_list_text(const ZklockNameList *list)
{
	static char text[ZKLOCK_LISTED_NAMES * (NAME_BYTES + 4) + 32];
	int			n_others = list->n - list->n_listed;
	size_t		length = 0;

	text[0] = '\0';
	for (int i = 0; i < list->n_listed; i++)
		length += snprintf(text + length, sizeof(text) - length, "%s\"%.*s\"",
						   i == 0 ? "" : ", ", NAME_BYTES, list->listed[i]);
	if (n_others > 0)
		snprintf(text + length, sizeof(text) - length, " and %d %s",
				 n_others, n_others == 1 ? "other" : "others");
	return text;
}
