/*-------------------------------------------------------------------------
 *
 * waits.c
 *		The state machine of the node that publishes a long wait.
 *
 * A session has one ephemeral node below <root>/waits.  Its name contains the
 * edges of the wait-for graph (wait_name.h), its data describes the waiting
 * sessions.  When a report changes, the new node is created before the old one is
 * deleted.  As in all recipes, zkl__waits_drive() compares the wanted state with
 * the existing one and sends the next operation, so after a lost connection it at
 * most has to find out which nodes exist.
 *
 * A session that suspects a deadlock probes the other members: it deletes their
 * nodes.  Each owner then checks its server again and creates its node again.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "waits.h"

/* Attempts to create the node, each followed by a create of the missing parent. */
#define MAX_ATTEMPTS 5

/*
 * How long a report stays the same unless another session probes it.  Each change
 * restarts the own search and can fail another session's cycle check, so a report that
 * changed all the time would hide a deadlock.  A victim claim is always up to date.
 */
#define KEEP_MS 500


/*
 * The nodes that exist
 */

/* Queues a node for deletion; if memory is exhausted, a later list finds it again. */
static void
remove_later(ZklSession *session, const char *name)
{
	ZklWaits   *w = session->waits;
	ZklOldNode **end = &w->old;
	ZklOldNode *old;

	for (; *end; end = &(*end)->next)
		if (strcmp((*end)->name, name) == 0)
			return;
	old = malloc(sizeof(ZklOldNode) + strlen(name) + 1);
	if (old == NULL)
	{
		w->unknown = true;
		zkl__retry_later(session);
		return;
	}
	old->next = NULL;
	strcpy(old->name, name);
	*end = old;
}

/* Withdraws the report, which is no longer true. */
static void
retire(ZklSession *session)
{
	ZklWaits   *w = session->waits;

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
	ZklWaits   *w = session->waits;

	free(w->name);
	w->name = strdup(name);
	if (w->name == NULL)
	{
		remove_later(session, name);
		return;
	}
	w->attempts = 0;
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

static void
sort_out(ZklSession *session, const char *name)
{
	if (is_reported_by(session->waits, name))
		reported(session, name);
	else if (session->waits->name == NULL || strcmp(name, session->waits->name) != 0)
		remove_later(session, name);
}


/*
 * Operations
 */

static void
found(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklWaits   *w = session->waits;

	if (w->state_call != call)
		return;
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
		if (zkl_is_wait_of(result->children[i],
						   (uint64_t) session->connection.session_id))
			sort_out(session, result->children[i]);
	zkl__waits_drive(session);
}

static void
send_find(ZklSession *session)
{
	ZklWaits   *w = session->waits;

	w->state_call = zkl__list_synced(zkl__call_new(session, found, NULL, NULL), w->path, false);
}

static void
parent_created(ZklCall *call, const ZklResult *result)
{
	if (result->code != ZKL_RC_OK && result->code != ZKL_RC_NODE_EXISTS &&
		result->code != ZKL_RC_CONNECTION_LOSS)
		call->session->waits->refused = true;
}

static void
send_parent(ZklSession *session)
{
	ZklCall    *call = zkl__call_new(session, parent_created, NULL, NULL);

	zkl__call_sent(call, call && zkl_client_create(session->client,
												   session->waits->path, "", 0,
												   ZKL_CREATE_PERSISTENT,
												   &call->completion));
}

static void
on_created(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklWaits   *w = session->waits;
	const char *name = result->path ? strrchr(result->path, '/') : NULL;

	if (w->state_call != call)
		return;
	w->state_call = NULL;
	switch (result->code)
	{
		case ZKL_RC_OK:
			if (name)
				sort_out(session, name + 1);
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
	ZklWaits   *w = session->waits;
	ZklText		t = {NULL, 0, 0, false};

	zkl_text_add(&t, "%" PRIx64 ".%" PRIx64 ".%" PRIx64 ".%c%s.",
				 (uint64_t) session->connection.session_id, w->wait, ++w->version,
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
	ZklWaits   *w = session->waits;
	ZklCall    *call = NULL;
	char	   *path = NULL;

	if (w->prefix || compose_prefix(session))
		path = zkl__path(w->path, w->prefix);
	if (path)
		call = zkl__call_new(session, on_created, NULL, NULL);
	if (call)
		call->confirms = true;
	w->state_call = zkl__call_sent(call, call &&
								   zkl_client_create(session->client, path, w->data,
													 w->data_len,
													 ZKL_CREATE_EPHEMERAL_SEQUENTIAL,
													 &call->completion));
	free(path);
}

static void
removed(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklWaits   *w = session->waits;
	ZklOldNode *old = w->old;

	if (w->state_call != call)
		return;
	w->state_call = NULL;
	if (result->code == ZKL_RC_CONNECTION_LOSS)
		return;
	if (result->code != ZKL_RC_OK && result->code != ZKL_RC_NO_NODE)
	{
		zkl__retry_later(session);
		return;
	}
	w->old = old->next;
	free(old);
	zkl__waits_drive(session);
}

static void
send_remove(ZklSession *session)
{
	ZklWaits   *w = session->waits;
	char	   *path = zkl__path(w->path, w->old->name);
	ZklCall    *call = path ? zkl__call_new(session, removed, NULL, NULL) : NULL;

	w->state_call = zkl__call_sent(call, call && zkl_client_delete(session->client, path,
																   &call->completion));
	free(path);
}

static void
watched(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklWaits   *w = session->waits;

	if (w->watch_call != call)
		return;
	w->watch_call = NULL;
	if (result->code == ZKL_RC_NO_NODE)
		zkl__waits_note_probe(session);
	else if (result->code != ZKL_RC_CONNECTION_LOSS)
		w->is_watched = true;
}

static void
send_watch(ZklSession *session)
{
	ZklWaits   *w = session->waits;
	char	   *path = zkl__path(w->path, w->name);
	ZklCall    *call = path ? zkl__call_new(session, watched, NULL, NULL) : NULL;

	w->watch_call = zkl__call_sent(call, call && zkl_client_get(session->client, path,
																true, &call->completion));
	free(path);
}

/* Sends the next operation, if one is needed and the session is connected. */
void
zkl__waits_drive(ZklSession *session)
{
	ZklWaits   *w = session->waits;

	if (w == NULL)
		return;
	if (session->state != ZKL_SESSION_CONNECTED)
	{
		w->next_search_ms = 0;	/* on_connected() requests a search */
		return;
	}
	if (w->state_call == NULL)
	{
		if (w->unknown)
			send_find(session);
		else if (is_wanted(w) && w->name == NULL)
			send_create(session);
		else if (w->old && session->retry_ms == 0)
			send_remove(session);	/* a refused delete waits for retry_ms */
	}
	if (w->name && !w->is_watched && w->watch_call == NULL)
		send_watch(session);
	zkl__search_drive(session);
}

static void
on_connected(ZklSession *session)
{
	if (session->waits == NULL)
		return;
	session->waits->is_watched = false;
	session->waits->search_wanted = true;
}


/*
 * Probes by other sessions
 */

/*
 * Withdraws the report after a probe.  Lists the queues again and wakes the owner;
 * the wait is reported again once the owner has checked its server.
 */
void
zkl__waits_note_probe(ZklSession *session)
{
	ZklWaits   *w = session->waits;

	retire(session);
	session->n_probes++;
	w->is_probed = true;
	for (int i = 0; i < w->request->n; i++)
	{
		zkl__node_relist(w->request->nodes[i]);
		zkl__node_drive(w->request->nodes[i]);
	}
	if (w->request->permit)
	{
		zkl__permit_recount(w->request);
		zkl__permit_drive(w->request);
	}
	zkl__wake(session);
	zkl__waits_drive(session);
}

static void
on_watch(ZklSession *session, const char *path)
{
	ZklWaits   *w = session->waits;
	size_t		length;

	if (w == NULL || w->name == NULL)
		return;
	length = strlen(w->path);
	if (strncmp(path, w->path, length) == 0 && path[length] == '/' &&
		strcmp(path + length + 1, w->name) == 0)
		zkl__waits_note_probe(session);
}

/* Replaces the report by one that claims to be the victim, or no longer does. */
void
zkl__waits_claim(ZklSession *session, bool claims)
{
	ZklWaits   *w = session->waits;

	retire(session);
	w->claims = claims;
	w->composed_ms = 0;
	zkl__waits_drive(session);
}


/*
 * The report that is wanted
 */

static bool
same_as_published(const ZklWaits *w, const ZklText *edges, const ZklText *data)
{
	return w->edges && w->data_len == data->length &&
		strcmp(w->edges, edges->text) == 0 && strcmp(w->data, data->text) == 0;
}

static bool
is_kept(const ZklWaits *w)
{
	return w->edges && !w->claims && !w->is_probed &&
		zkl_client_now() < w->composed_ms + KEEP_MS;
}

static void
compose(ZklSession *session, const ZklWaitReport *report)
{
	ZklWaits   *w = session->waits;
	ZklText		edges = {NULL, 0, 0, false};
	ZklText		data = {NULL, 0, 0, false};

	if (is_kept(w))
		return;
	zkl__report_edges(&edges, w->request, report);
	zkl__report_data(&data, w->request, report);
	if (edges.failed || data.failed || same_as_published(w, &edges, &data))
	{
		free(edges.text);
		free(data.text);
		return;
	}
	retire(session);
	w->composed_ms = zkl_client_now();
	free(w->edges);
	free(w->data);
	w->edges = edges.text;
	w->data = data.text;
	w->data_len = data.length;
}

static void
forget_report(ZklSession *session)
{
	ZklWaits   *w = session->waits;

	retire(session);
	free(w->edges);
	w->edges = NULL;
	w->claims = false;
	w->refused = false;
	w->is_probed = false;
	session->is_unsearched = false;
	w->pause_ms = 0;
}

static ZklWaits *
waits_of(ZklSession *session)
{
	if (session->waits == NULL)
	{
		session->waits = calloc(1, sizeof(ZklWaits));
		if (session->waits)
			session->waits->path = zkl__path(session->root, "waits");
		if (session->waits && session->waits->path == NULL)
		{
			free(session->waits);
			session->waits = NULL;
		}
	}
	return session->waits;
}

/* Withdraws the report, because the request no longer waits. */
static void
on_ended(ZklRequest *request)
{
	ZklSession *session = request->session;

	if (session->waits == NULL || session->waits->request != request)
		return;
	forget_report(session);
	session->waits->request = NULL;
	zkl__waits_drive(session);
}

/* Updates the wanted report; returns false if there is nothing to report. */
static bool
publish(ZklRequest *request, const ZklWaitReport *report)
{
	ZklSession *session = request->session;
	ZklWaits   *w = waits_of(session);

	if (w == NULL || request->status != ZKL_PENDING || zkl__is_final(session))
		return false;
	if (w->request != request)
	{
		forget_report(session);
		w->request = request;
		request->on_ended = on_ended;
		w->wait++;
	}
	if (zkl__report_is_settled(request))
	{
		compose(session, report);
		if (report->probe == session->n_probes)
			w->is_probed = false;
	}
	zkl__waits_drive(session);
	return true;
}

ZklDeadlock *
zkl_request_publish(ZklRequest *request, const ZklWaitReport *report)
{
	ZklSession *session = request->session;
	bool		reported;

	zkl__session_lock(session);
	reported = publish(request, report);
	zkl__session_unlock(session);
	return reported ? zkl__search_judge(request, report) : NULL;
}

void
zkl_deadlock_free(ZklDeadlock *deadlock)
{
	free(deadlock);
}

static void
on_free(ZklSession *session)
{
	ZklWaits   *w = session->waits;

	if (w == NULL)
		return;
	zkl__search_forget(w);
	while (w->old)
	{
		ZklOldNode *old = w->old;

		w->old = old->next;
		free(old);
	}
	free(w->edges);
	free(w->data);
	free(w->prefix);
	free(w->path);
	free(w->name);
	free(w->suspects);
	free(w);
	session->waits = NULL;
}

static void
on_timer(ZklSession *session, int64_t now)
{
	(void) now;
	zkl__waits_drive(session);
}

static int64_t
next_timer(const ZklSession *session)
{
	return session->waits ? session->waits->next_search_ms : 0;
}

const ZklSessionPart zkl__waits_part = {
	.on_connected = on_connected,
	.on_watch = on_watch,
	.on_drive = zkl__waits_drive,
	.on_timer = on_timer,
	.next_timer = next_timer,
	.on_free = on_free,
};
