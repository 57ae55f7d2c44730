/*-------------------------------------------------------------------------
 *
 * wait_node.c
 *		The state machine of the node that publishes a long wait.
 *
 * A session has one ephemeral node below <root>/waits.  When a report changes, the new
 * node is created before the old one is deleted.  As in all recipes, zkl__waits_drive()
 * compares the wanted state with the existing one and sends the next operation, so after
 * a lost connection it at most has to find out which nodes exist.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "waits.h"

/* Attempts to create the node, each followed by a create of the missing parent. */
#define MAX_ATTEMPTS 5


/*
 * The nodes that exist
 */

static void
append(ZklWaits *w, ZklOldNode *old)
{
	old->next = NULL;
	if (w->old)
		w->last_old->next = old;
	else
		w->old = old;
	w->last_old = old;
}

/* Queues a node for deletion; if memory is exhausted, a later list finds it again. */
static void
remove_later(ZklSession *session, const char *name)
{
	ZklWaits   *w = zkl__waits(session);
	ZklOldNode *old = malloc(sizeof(ZklOldNode) + strlen(name) + 1);

	if (old == NULL)
	{
		w->unknown = true;
		zkl__retry_later(session);
		return;
	}
	strcpy(old->name, name);
	append(w, old);
}

/* The ensemble refuses to delete the first node of the list; it may not refuse the next. */
static void
put_last(ZklWaits *w)
{
	ZklOldNode *old = w->old;

	w->old = old->next;
	append(w, old);
}

/* The first node of the list is deleted. */
static void
forget_old(ZklWaits *w)
{
	ZklOldNode *old = w->old;

	w->old = old->next;
	free(old);
}

/* Goes on behind the nodes whose delete was refused, in a list that is new. */
static void
rotate(ZklWaits *w)
{
	int			n = 0;

	for (const ZklOldNode *old = w->old; old; old = old->next)
		n++;
	for (unsigned i = n > 0 ? w->n_refused % (unsigned) n : 0; i > 0; i--)
		put_last(w);
}

/* Withdraws the report, which is no longer true. */
void
zkl__waits_withdraw(ZklSession *session)
{
	ZklWaits   *w = zkl__waits(session);

	if (w->name)
		remove_later(session, w->name);
	free(w->name);
	w->name = NULL;
	w->watch_call = NULL;
	w->is_watched = false;
	free(w->prefix);
	w->prefix = NULL;
	zkl__search_forget(w);
}

/* The node exists, and is the wanted report: a search is due. */
static void
reported(ZklSession *session, const char *name)
{
	ZklWaits   *w = zkl__waits(session);

	free(w->name);
	w->name = strdup(name);
	if (w->name == NULL)
	{
		remove_later(session, name);
		return;
	}
	w->attempts = 0;
	w->active_ms = zkl_now_ms();
	w->search_wanted = true;
}

static bool
is_wanted(const ZklWaits *w)
{
	return w->request && w->edges && !w->refused && !w->is_probed;
}

static bool
is_reported_by(const ZklWaits *w, const char *name)
{
	return is_wanted(w) && w->prefix && w->name == NULL &&
		strncmp(name, w->prefix, strlen(w->prefix)) == 0;
}

static bool
is_report(const ZklWaits *w, const char *name)
{
	return w->name && strcmp(name, w->name) == 0;
}

static void
keep_or_remove(ZklSession *session, const char *name)
{
	if (is_reported_by(zkl__waits(session), name))
		reported(session, name);
	else if (!is_report(zkl__waits(session), name))
		remove_later(session, name);
}


/*
 * Operations
 */

/* The wanted report may be gone as well: a probe that the watch has not reported. */
static void
on_found(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklWaits   *w = zkl__waits(session);
	bool		gone = w->name != NULL;

	w->state_call = NULL;
	if (result->code == ZKL_RC_CONNECTION_LOSS)
		return;
	if (result->code != ZKL_RC_OK && result->code != ZKL_RC_NO_NODE)
	{
		zkl__retry_later(session);
		return;
	}
	w->unknown = false;
	while (w->old)
		forget_old(w);			/* those that still exist are in the list */
	for (int i = 0; result->code == ZKL_RC_OK && i < result->n_children; i++)
	{
		gone = gone && !is_report(w, result->children[i]);
		if (zkl_is_wait_of(result->children[i],
						   (uint64_t) zkl__session_id(session)))
			keep_or_remove(session, result->children[i]);
	}
	rotate(w);
	if (gone)
		zkl__waits_note_probe(session);
	else
		zkl__waits_drive(session);
}

static void
send_find(ZklSession *session)
{
	ZklWaits   *w = zkl__waits(session);

	w->state_call = zkl__list_synced(zkl__call_new(session, on_found, NULL, NULL),
									 zkl__config(session)->waits_path, false);
}

static void
on_parent_created(ZklCall *call, const ZklResult *result)
{
	if (result->code != ZKL_RC_OK && result->code != ZKL_RC_NODE_EXISTS &&
		result->code != ZKL_RC_CONNECTION_LOSS)
		zkl__waits(call->session)->refused = true;
}

static void
send_parent(ZklSession *session)
{
	ZklCall    *call = zkl__call_new(session, on_parent_created, NULL, NULL);

	zkl__call_sent(call, call && zkl_client_create(zkl__client(session),
												   zkl__config(session)->waits_path, "", 0,
												   ZKL_CREATE_PERSISTENT,
												   &call->completion));
}

static void
on_created(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklWaits   *w = zkl__waits(session);
	const char *name = result->path ? strrchr(result->path, '/') : NULL;

	w->state_call = NULL;
	switch (result->code)
	{
		case ZKL_RC_OK:
			if (name)
				keep_or_remove(session, name + 1);
			break;
		case ZKL_RC_CONNECTION_LOSS:
			w->unknown = true;
			return;
		case ZKL_RC_NO_NODE:
			if (w->attempts++ < MAX_ATTEMPTS)
				send_parent(session);
			else
				w->refused = true;
			break;
		default:
			w->refused = true;
			w->unknown = !zkl__is_refusal(result->code);
	}
	zkl__waits_drive(session);
}

static bool
compose_prefix(ZklSession *session)
{
	ZklWaits   *w = zkl__waits(session);
	ZklText		t = {NULL, 0, 0, false};

	zkl_text_add(&t, "%" PRIx64 ".%" PRIx64 ".%" PRIx64 ".%c%s.",
				 (uint64_t) zkl__session_id(session), w->wait, ++w->version,
				 w->claims ? 'c' : 'w', w->edges);
	if (t.failed)
	{
		free(t.text);
		zkl__retry_later(session);
		return false;
	}
	w->prefix = t.text;
	return true;
}

static void
send_create(ZklSession *session)
{
	ZklWaits   *w = zkl__waits(session);
	ZklCall    *call = NULL;
	char	   *path = NULL;

	if (w->prefix || compose_prefix(session))
		path = zkl__path(zkl__config(session)->waits_path, w->prefix);
	if (path)
		call = zkl__call_new(session, on_created, NULL, NULL);
	if (call)
		call->confirms = true;
	w->state_call = zkl__call_sent(call, call &&
								   zkl_client_create(zkl__client(session), path, w->data,
													 w->data_len,
													 ZKL_CREATE_EPHEMERAL_SEQUENTIAL,
													 &call->completion));
	free(path);
}

static void
on_removed(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklWaits   *w = zkl__waits(session);

	w->state_call = NULL;
	if (result->code == ZKL_RC_CONNECTION_LOSS)
		return;
	if (result->code != ZKL_RC_OK && result->code != ZKL_RC_NO_NODE)
	{
		put_last(w);
		w->n_refused++;
		zkl__retry_later(session);
		return;
	}
	forget_old(w);
	zkl__waits_drive(session);
}

static void
on_watch_set(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklWaits   *w = zkl__waits(session);

	if (w->watch_call != call)
		return;
	w->watch_call = NULL;
	if (result->code == ZKL_RC_NO_NODE)
		zkl__waits_note_probe(session);
	else if (result->code != ZKL_RC_CONNECTION_LOSS)
		w->is_watched = true;
}

/* Sends the next operation, if one is needed and the session is connected. */
void
zkl__waits_drive(ZklSession *session)
{
	ZklWaits   *w = zkl__waits(session);

	if (!zkl__is_connected(session))
	{
		w->next_search_ms = 0;	/* on_connected() requests a search */
		return;
	}
	if (w->state_call == NULL)
	{
		/* A refused list or delete waits for retry_ms. */
		if (w->unknown && !zkl__has_retry(session))
			send_find(session);
		else if (!w->unknown && is_wanted(w) && w->name == NULL)
			send_create(session);
		else if (!w->unknown && w->old && !zkl__has_retry(session))
			w->state_call =
				zkl__delete_child(zkl__call_new(session, on_removed, NULL, NULL),
								  zkl__config(session)->waits_path, w->old->name);
	}
	if (w->name && !w->is_watched && w->watch_call == NULL)
		w->watch_call = zkl__read_child(zkl__call_new(session, on_watch_set, NULL, NULL),
										zkl__config(session)->waits_path, w->name, true);
	zkl__search_drive(session);
}

void
zkl__waits_free_nodes(ZklWaits *w)
{
	while (w->old)
		forget_old(w);
	free(w->prefix);
	free(w->name);
}
