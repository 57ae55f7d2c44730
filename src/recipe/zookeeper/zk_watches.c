/*-------------------------------------------------------------------------
 *
 * zk_watches.c
 *		Keeps the client library from setting watches again after reconnecting.
 *
 * The library remembers the paths of all watches that have not fired, also those of
 * waits that were given up, and sends them in one request on each new connection.  The
 * server closes the connection if this request is longer than jute.maxbuffer, and the
 * session would never be usable again.  The recipes do not need it: they read everything
 * again, with new watches, after reconnecting.  So this file knows the watches as well,
 * and removes them from the library when the connection is lost.  A path has one: on its
 * data or, if it has permits, on its children.
 *
 * Called with the library's mutex held.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "zk_library.h"

/* Returns the link to the watch on this path, or to the end of its list. */
static ZklSubmission **
find(ZklClient *client, const char *path)
{
	ZklSubmission **link = &client->watches[zkl_hash(ZKL_HASH, path, strlen(path)) % ZKL_WATCH_LISTS];

	while (*link && strcmp((*link)->ops->path, path) != 0)
		link = &(*link)->next;
	return link;
}

static void
remove_watch(ZklSubmission **link)
{
	ZklSubmission *watch = *link;

	*link = watch->next;
	free(watch);
}

void
zkl_watches_add(ZklSubmission *submission)
{
	ZklSubmission **link = find(submission->client, submission->ops->path);

	if (*link)
		remove_watch(link);
	submission->next = *link;
	*link = submission;
}

void
zkl_watches_fired(ZklClient *client, const char *path)
{
	ZklSubmission **link = find(client, path);

	if (*link)
		remove_watch(link);
}

void
zkl_watches_forget(ZklClient *client, watcher_fn watcher)
{
	for (int i = 0; i < ZKL_WATCH_LISTS; i++)
		while (client->watches[i])
		{
			/* "Local": nothing is sent. */
			if (client->zh)
				(void) zoo_aremove_watches(client->zh, client->watches[i]->ops->path,
										   ZWATCHTYPE_ANY, watcher, client, 1, NULL, NULL);
			remove_watch(&client->watches[i]);
		}
}
