/*-------------------------------------------------------------------------
 *
 * wait_node.c
 *		The state machine of the node that publishes a long wait.
 *
 * A session has one ephemeral node below <root>/waits.  As in all recipes,
 * zkl__waits_drive() compares the wanted state with the existing one and sends the next
 * operation.  After a lost connection, or a delete that was refused, it finds out which
 * nodes exist.
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
on_removed(ZklCall *call, const ZklResult *result)
{
	if (result->code == ZKL_RC_OK || result->code == ZKL_RC_NO_NODE)
		return;
	zkl__waits(call->session)->unknown = true;
	if (result->code != ZKL_RC_CONNECTION_LOSS)
		zkl__retry_later(call->session);
}

/* Deletes a node; if that fails, a later list finds it again. */
static void
remove_node(ZklSession *session, const char *name)
{
	if (zkl__delete_child(zkl__call_new(session, on_removed, NULL, NULL),
						  zkl__config(session)->waits_path, name) == NULL)
		zkl__waits(session)->unknown = true;
}

/* Withdraws the report, which is no longer true. */
void
zkl__waits_withdraw(ZklSession *session)
{
	ZklWaits   *w = zkl__waits(session);

	if (w->name)
		remove_node(session, w->name);
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
		remove_node(session, name);
		return;
	}
	w->attempts = 0;
	w->active_ms = zkl_now_ms();
	w->next_search_ms = w->active_ms;
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
		remove_node(session, name);
}


/*
 * Operations
 */

/*
 * The wanted report may be gone as well: a probe that the watch has not reported.  The
 * queues are read again then, and if the report before was not known to be gone.
 */
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
	for (int i = 0; result->code == ZKL_RC_OK && i < result->n_children; i++)
	{
		gone = gone && !is_report(w, result->children[i]);
		if (zkl_is_wait_of(result->children[i],
						   (uint64_t) zkl__session_id(session)))
			keep_or_remove(session, result->children[i]);
	}
	if (gone || (w->request && w->prefix == NULL))
		zkl__waits_note_probe(session);
	else
		zkl__waits_drive(session);
}

static void
send_find(ZklSession *session)
{
	ZklWaits   *w = zkl__waits(session);

	w->state_call = zkl__get_children(zkl__call_new(session, on_found, NULL, NULL),
									  zkl__config(session)->waits_path, true, false);
}

/* NO_NODE: another client has deleted the root, which the waiting request creates again. */
static void
on_parent_created(ZklCall *call, const ZklResult *result)
{
	if (result->code != ZKL_RC_OK && result->code != ZKL_RC_NODE_EXISTS &&
		result->code != ZKL_RC_CONNECTION_LOSS && result->code != ZKL_RC_NO_NODE)
		zkl__waits(call->session)->refused = true;
}

static void
send_parent(ZklSession *session)
{
	ZklOp		op = {
		.kind = ZKL_OP_CREATE,
		.path = zkl__config(session)->waits_path,
		.data = "",
		.create_kind = ZKL_CREATE_PERSISTENT
	};

	zkl__send(zkl__call_new(session, on_parent_created, NULL, NULL), &op);
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
			w->unknown = w->unknown || !zkl__is_refusal(result->code);
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
				 w->is_victim_claim ? 'c' : 'w', w->edges);
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
	ZklOp		op = {
		.kind = ZKL_OP_CREATE,
		.data = w->data,
		.data_len = w->data_len,
		.create_kind = ZKL_CREATE_EPHEMERAL_SEQUENTIAL
	};

	if (w->prefix || compose_prefix(session))
		w->state_call = zkl__send_child(zkl__call_new(session, on_created, NULL, NULL), &op,
										zkl__config(session)->waits_path, w->prefix);
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
		return;
	if (w->state_call == NULL)
	{
		if (is_wanted(w) && w->name == NULL && !w->unknown)
			send_create(session);
		else if (w->unknown && !zkl__has_retry(session))
			send_find(session);
	}
	if (w->name && !w->is_watched && w->watch_call == NULL)
		w->watch_call = zkl__read_child(zkl__call_new(session, on_watch_set, NULL, NULL),
										zkl__config(session)->waits_path, w->name, true);
	zkl__search_drive(session);
}
