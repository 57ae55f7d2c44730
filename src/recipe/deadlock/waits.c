/*-------------------------------------------------------------------------
 *
 * waits.c
 *		The wait report that a session needs: when it is composed again, and withdrawn.
 *
 * wait_node.c makes the nodes of the ensemble follow.
 *
 * A session that suspects a deadlock probes the other members: it deletes their
 * nodes.  Each owner then checks its server again and creates its node again.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "waits.h"

/*
 * How long a report stays the same unless another session probes it.  Each change
 * restarts the own search and can fail another session's cycle check, so a report that
 * changed all the time would hide a deadlock.  A victim claim is always up to date.
 */
#define KEEP_MS 500

const size_t zkl__waits_size = sizeof(ZklWaits);


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
	ZklWaits   *w = zkl__waits(session);

	zkl__waits_withdraw(session);
	w->request->n_probes++;
	w->is_probed = true;
	for (int i = 0; i < w->request->n; i++)
		zkl__node_reread(w->request->nodes[i]);
	if (w->request->permit)
		zkl__permit_reread(w->request);
	zkl__request_drive(w->request);
	zkl__wake(session);
	zkl__waits_drive(session);
}

void
zkl__waits_watched(ZklSession *session, const char *path)
{
	ZklWaits   *w = zkl__waits(session);
	const char *parent = zkl__config(session)->waits_path;
	size_t		length = strlen(parent);

	if (w->name && strncmp(path, parent, length) == 0 && path[length] == '/' &&
		strcmp(path + length + 1, w->name) == 0)
		zkl__waits_note_probe(session);
}

/*
 * Replaces the report by one that claims to be the victim, or no longer does.  The queues
 * and the server are read again before, as after a probe.
 */
void
zkl__waits_set_victim_claim(ZklSession *session, bool is_victim_claim)
{
	zkl__waits(session)->is_victim_claim = is_victim_claim;
	zkl__waits_note_probe(session);
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
	return w->edges && !w->is_victim_claim && !w->is_probed &&
		zkl_now_ms() < w->composed_ms + KEEP_MS;
}

/*
 * Composes the wanted report.  If it replaces another one, the queues are read again after
 * the delete of that one, and the report is composed again: see deadlock_search.c.
 */
static void
compose(ZklSession *session, const ZklWaitReport *report)
{
	ZklWaits   *w = zkl__waits(session);
	ZklText		edges = {NULL, 0, 0, false};
	ZklText		data = {NULL, 0, 0, false};
	bool		changes;

	if (is_kept(w))
		return;
	zkl__report_compose(&edges, &data, w->request, report);
	changes = !edges.failed && !data.failed && !same_as_published(w, &edges, &data);
	if (changes && w->prefix == NULL)
	{
		w->composed_ms = zkl_now_ms();
		free(w->edges);
		free(w->data);
		w->edges = edges.text;
		w->data = data.text;
		w->data_len = data.length;
		return;
	}
	free(edges.text);
	free(data.text);
	if (changes && w->name)
		zkl__waits_note_probe(session);
}

static void
forget_report(ZklSession *session)
{
	ZklWaits   *w = zkl__waits(session);

	zkl__waits_withdraw(session);
	free(w->edges);
	w->edges = NULL;
	w->is_victim_claim = false;
	w->refused = false;
	w->attempts = 0;
	w->is_probed = false;
	if (w->request)
		w->request->is_unsearched = false;
	w->pause_ms = 0;
	w->victim_claim_pause_ms = 0;
	w->next_victim_claim_ms = 0;
}

/* Withdraws the report, because the request no longer waits. */
static void
on_ended(ZklRequest *request)
{
	ZklSession *session = request->session;

	if (zkl__waits(session)->request != request)
		return;
	forget_report(session);
	zkl__waits(session)->request = NULL;
	zkl__waits_drive(session);
}

/* Updates the wanted report; returns false if there is nothing to report. */
static bool
publish(ZklRequest *request, const ZklWaitReport *report)
{
	ZklSession *session = request->session;
	ZklWaits   *w = zkl__waits(session);

	if (request->status != ZKL_PENDING || zkl__is_final(session))
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
		if (report->probe == request->n_probes)
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
	return reported ? zkl__search_judge(session) : NULL;
}

void
zkl_deadlock_free(ZklDeadlock *deadlock)
{
	free(deadlock);
}

void
zkl__waits_free(ZklSession *session)
{
	ZklWaits   *w = zkl__waits(session);

	zkl__search_forget(w);
	free(w->name);
	free(w->prefix);
	free(w->edges);
	free(w->data);
	free(w->suspects);
	free(w->suspect_waits);
}

void
zkl__waits_connected(ZklSession *session)
{
	ZklWaits   *w = zkl__waits(session);

	w->is_watched = false;
	w->active_ms = zkl_now_ms();
	w->has_probed = false;
}
