/*-------------------------------------------------------------------------
 *
 * waits.c
 *		The node that tells others of a long wait.
 *
 * One ephemeral node below <root>/waits; its name says who waits for whom
 * (wait_name.h), its data who that is.  When something changes a new node is
 * made before the old one goes.  Like all of the recipes this is driven: what
 * is wanted and what there is are compared, and the next operation is sent; so
 * a lost connection costs nothing but asking what there is.
 *
 * Somebody who suspects a deadlock removes the nodes of the others in it, which
 * asks their owners to look again at their servers and to make them anew.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "waits.h"

/* Creates that find no parent, although it was made before. */
#define MAX_ATTEMPTS 5


/*
 * What there is
 */

/* To be removed; when memory is exhausted it will be found again. */
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

/* What was told is not true any more. */
static void
retire(ZklSession *session)
{
	ZklWaits   *w = session->waits;

	if (w->name)
		remove_later(session, w->name);
	free(w->name);
	w->name = NULL;
	w->watching = NULL;
	w->is_watched = false;
	free(w->prefix);
	w->prefix = NULL;
	zkl__look_forget(w);
}

/* The node exists, and tells what is to be told. */
static void
told(ZklSession *session, const char *name)
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
	w->look_wanted = true;
}

static bool
is_wanted(const ZklWaits *w)
{
	return w->request && w->edges && !w->refused && !w->is_questioned;
}

static bool
is_told_by(const ZklWaits *w, const char *name)
{
	return is_wanted(w) && w->prefix && w->name == NULL &&
		strncmp(name, w->prefix, strlen(w->prefix)) == 0;
}

static void
sort_out(ZklSession *session, const char *name)
{
	if (is_told_by(session->waits, name))
		told(session, name);
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

	if (w->asked != call)
		return;
	w->asked = NULL;
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

/* As for a lock's node whose create was not answered: behind a sync. */
static void
send_find(ZklSession *session)
{
	ZklWaits   *w = session->waits;
	ZklCall    *call = zkl__call_new(session, zkl__ignore_answer, NULL, NULL);

	call = zkl__call_sent(call, call && zkl_client_sync(session->client, w->path,
														&call->completion));
	if (call == NULL)
		return;
	call = zkl__call_new(session, found, NULL, NULL);
	w->asked = zkl__call_sent(call, call && zkl_client_list(session->client, w->path,
															&call->completion));
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
created(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklWaits   *w = session->waits;
	const char *name = result->path ? strrchr(result->path, '/') : NULL;

	if (w->asked != call)
		return;
	w->asked = NULL;
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
		call = zkl__call_new(session, created, NULL, NULL);
	if (call)
		call->confirms = true;
	w->asked = zkl__call_sent(call, call &&
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

	if (w->asked != call)
		return;
	w->asked = NULL;
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

	w->asked = zkl__call_sent(call, call && zkl_client_delete(session->client, path,
															  &call->completion));
	free(path);
}

static void
watched(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklWaits   *w = session->waits;

	if (w->watching != call)
		return;
	w->watching = NULL;
	if (result->code == ZKL_RC_NO_NODE)
		zkl__waits_doubt(session);
	else if (result->code != ZKL_RC_CONNECTION_LOSS)
		w->is_watched = true;
}

static void
send_watch(ZklSession *session)
{
	ZklWaits   *w = session->waits;
	char	   *path = zkl__path(w->path, w->name);
	ZklCall    *call = path ? zkl__call_new(session, watched, NULL, NULL) : NULL;

	w->watching = zkl__call_sent(call, call && zkl_client_get(session->client, path,
															  true, &call->completion));
	free(path);
}

/* Sends what comes next, if anything, and if that is possible. */
void
zkl__waits_drive(ZklSession *session)
{
	ZklWaits   *w = session->waits;

	if (w == NULL)
		return;
	if (session->state != ZKL_SESSION_CONNECTED)
	{
		w->next_look_ms = 0;	/* looks when it is */
		return;
	}
	if (w->asked == NULL)
	{
		if (w->unknown)
			send_find(session);
		else if (is_wanted(w) && w->name == NULL)
			send_create(session);
		else if (w->old && session->retry_ms == 0)
			send_remove(session);	/* not sooner, if that was refused */
	}
	if (w->name && !w->is_watched && w->watching == NULL)
		send_watch(session);
	zkl__look_drive(session);
}

void
zkl__waits_reconnected(ZklSession *session)
{
	if (session->waits == NULL)
		return;
	session->waits->is_watched = false;
	session->waits->look_wanted = true;
}


/*
 * Questions of others
 */

/*
 * What is told is doubted: before it is told again, the queues are listed and
 * the owner looks at its server.
 */
void
zkl__waits_doubt(ZklSession *session)
{
	ZklWaits   *w = session->waits;

	retire(session);
	w->n_questions++;
	w->is_questioned = true;
	for (int i = 0; i < w->request->n; i++)
	{
		zkl__node_relist(w->request->nodes[i]);
		zkl__node_drive(w->request->nodes[i]);
	}
	zkl__wake(session);
	zkl__waits_drive(session);
}

void
zkl__waits_watch_fired(ZklSession *session, const char *path)
{
	ZklWaits   *w = session->waits;
	size_t		length;

	if (w == NULL || w->name == NULL)
		return;
	length = strlen(w->path);
	if (strncmp(path, w->path, length) == 0 && path[length] == '/' &&
		strcmp(path + length + 1, w->name) == 0)
		zkl__waits_doubt(session);
}

/* Tells all others whether this session is about to give way. */
void
zkl__waits_claim(ZklSession *session, bool claims)
{
	ZklWaits   *w = session->waits;

	retire(session);
	w->claims = claims;
	zkl__waits_drive(session);
}


/*
 * What is to be told
 */

static bool
same_as_told(const ZklWaits *w, const ZklText *edges, const ZklText *data)
{
	return w->edges && w->data_len == data->length &&
		strcmp(w->edges, edges->text) == 0 && strcmp(w->data, data->text) == 0;
}

static void
compose(ZklSession *session, const ZklTale *tale)
{
	ZklWaits   *w = session->waits;
	ZklText		edges = {NULL, 0, 0, false};
	ZklText		data = {NULL, 0, 0, false};

	zkl__tale_edges(&edges, w->request, tale);
	zkl__tale_data(&data, w->request, tale);
	if (edges.failed || data.failed || same_as_told(w, &edges, &data))
	{
		free(edges.text);
		free(data.text);
		return;
	}
	retire(session);
	free(w->edges);
	free(w->data);
	w->edges = edges.text;
	w->data = data.text;
	w->data_len = data.length;
}

static void
forget_tale(ZklSession *session)
{
	ZklWaits   *w = session->waits;

	retire(session);
	free(w->edges);
	w->edges = NULL;
	w->claims = false;
	w->refused = false;
	w->is_questioned = false;
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

const ZklDeadlock *
zkl_request_tell(ZklRequest *request, const ZklTale *tale)
{
	ZklSession *session = request->session;
	const ZklDeadlock *deadlock = NULL;
	ZklWaits   *w;

	zkl__session_lock(session);
	w = waits_of(session);
	if (w && request->status == ZKL_PENDING && !zkl__is_final(session))
	{
		if (w->request != request)
		{
			forget_tale(session);
			w->request = request;
			w->wait++;
		}
		if (zkl__tale_is_settled(request))
		{
			compose(session, tale);
			if (tale->question == w->n_questions)
				w->is_questioned = false;
		}
		zkl__waits_drive(session);
		deadlock = w->found;
	}
	zkl__session_unlock(session);
	return deadlock;
}

/* The request waits no more: nobody shall think so. */
void
zkl__waits_end(ZklRequest *request)
{
	ZklSession *session = request->session;

	if (session->waits == NULL || session->waits->request != request)
		return;
	forget_tale(session);
	session->waits->request = NULL;
	zkl__waits_drive(session);
}

void
zkl__waits_free(ZklSession *session)
{
	ZklWaits   *w = session->waits;

	if (w == NULL)
		return;
	zkl__look_forget(w);
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
