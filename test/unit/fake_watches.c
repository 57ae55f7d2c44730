/*-------------------------------------------------------------------------
 *
 * fake_watches.c
 *		What each client's server has seen of the tree, and the watches there.
 *
 * A server applies the transactions one by one, later than the leader if it lags.
 * Each transaction turns the watches that it touches into events.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "fake_internal.h"

typedef struct Watch
{
	struct Watch *next;
	char	   *path;
	ZklClient  *client;
	bool		children;		/* else of the node itself */
} Watch;

static Watch *watches;

void
fake_watch_add(ZklClient *client, const char *path, bool children)
{
	Watch	   *watch;

	for (watch = watches; watch; watch = watch->next)
		if (watch->client == client && watch->children == children &&
			strcmp(watch->path, path) == 0)
			return;
	watch = calloc(1, sizeof(Watch));
	watch->path = strdup(path);
	watch->client = client;
	watch->children = children;
	watch->next = watches;
	watches = watch;
}

static void
watch_free(Watch **link)
{
	Watch	   *watch = *link;

	*link = watch->next;
	free(watch->path);
	free(watch);
}

/* The client's server sees these transactions; touched watches become events, once. */
void
fake_catch_up_to(ZklClient *client, int64_t zxid)
{
	Watch	  **link = &watches;

	while (*link && client->view < zxid)
		if ((*link)->client == client &&
			fake_tree_touched((*link)->path, (*link)->children, client->view, zxid))
		{
			fake_wire_push_watch(&client->deliveries, (*link)->path, (*link)->children);
			watch_free(link);
		}
		else
			link = &(*link)->next;
	if (client->view < zxid)
		client->view = zxid;
}

void
fake_list_servers(void)
{
	for (ZklClient *client = fake_clients; client; client = client->next)
		if (client->connected && !client->lags)
			fake_catch_up_to(client, fake_tree_zxid());
}

void
fake_forget_watches(const ZklClient *client)
{
	Watch	  **link = &watches;

	while (*link)
		if ((*link)->client == client)
			watch_free(link);
		else
			link = &(*link)->next;
}

int
fake_watches(const ZklClient *client)
{
	int			n = 0;

	for (Watch *watch = watches; watch; watch = watch->next)
		n += watch->client == client;
	return n;
}

void
fake_lag(ZklClient *client, bool lags)
{
	client->lags = lags;
	if (client->connected && !lags)
		fake_catch_up_to(client, fake_tree_zxid());
}

void
fake_catch_up(ZklClient *client, int transactions)
{
	int64_t		behind = fake_tree_zxid() - client->view;

	if (client->connected)
		fake_catch_up_to(client, client->view + (behind < transactions ? behind : transactions));
}
