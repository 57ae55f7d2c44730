/*-------------------------------------------------------------------------
 *
 * wait_report.c
 *		Composes the name and the data of a wait report.
 *
 * Reads the request and the owner's ZklWaitReport, changes neither.  Called by
 * waits.c only.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <string.h>

#include "waits.h"

/* Appends a tab and the text; control characters, which could end the line, become ? */
static void
add_field(ZklText *t, const char *text)
{
	int			start = t->length;

	zkl_text_add(t, "\t%s", text);
	for (int i = start + 1; !t->failed && i < t->length; i++)
		if ((unsigned char) t->text[i] < ' ')
			t->text[i] = '?';
}

static bool
is_waiting(const ZklNode *node)
{
	return node->state == NODE_READING || node->state == NODE_WAITING;
}

/* Does the request hold the mutex of a semaphore that is full? */
static bool
is_waiting_for_permit(const ZklRequest *request)
{
	return request->permit && zkl__request_is_first(request) &&
		request->permit->seen == SEEN_FULL;
}

/* Has the session given up a node that still exists?  Waits for it end by themselves. */
static bool
has_pending_deletes(const ZklSession *session)
{
	for (const ZklNode *node = zkl__nodes(session); node; node = node->next)
		if (zkl__node_is_pending_delete(node))
			return true;
	return false;
}

/* Can the wait be reported?  Not while a node changes state or a delete is pending. */
bool
zkl__report_is_settled(const ZklRequest *request)
{
	bool		any = is_waiting_for_permit(request);

	if (has_pending_deletes(request->session))
		return false;
	for (int i = 0; i < request->n; i++)
	{
		const ZklNode *node = request->nodes[i];

		if (is_waiting(node))
			any = true;
		else if (node->state != NODE_HELD && node->state != NODE_READING_CZXID)
			return false;
	}
	return any;
}

/*
 * Adds one node set with all owners of permits, since any of them may release
 * one.  If they do not all fit, adds none: the set would be wrong.
 */
static void
add_owners(ZklText *edges, const ZklPermit *permit)
{
	if (edges->length + permit->n_owners * ZKL_WAIT_ID_SIZE > ZKL_WAIT_NAME_MAX)
		return;
	for (int i = 0; i < permit->n_owners; i++)
		zkl_text_add(edges, "%s%" PRIx64, i ? "+" : "", permit->owners[i]);
}

/* The first in a semaphore's queue waits for permits; the others wait for its place. */
static void
add_node_sets(ZklText *edges, const ZklRequest *request)
{
	int			start = edges->length;

	if (is_waiting_for_permit(request))
		add_owners(edges, request->permit);
	for (int i = 0; i < request->n; i++)
	{
		const ZklNode *node = request->nodes[i];

		for (int j = 0; is_waiting(node) && j < node->n_blockers; j++)
			if (edges->length < ZKL_WAIT_NAME_MAX)
				zkl_text_add(edges, "%s%s%" PRIx64, edges->length > start ? "," : "",
							 request->permit || node->blockers[j].only_for_place
							 ? ZKL_WAIT_FOR_PLACE : "",
							 node->blockers[j].owner);
	}
}

/*
 * Is the local waiter part of the report?  A session that holds nothing blocks no other
 * session in the ensemble, so it cannot be part of a cycle.  A victim claim lists the
 * suspects alone: as long as they are deadlocked, the claim does not change.
 */
static bool
is_listed(const ZklWaits *w, const ZklLocalWaiter *local_waiter)
{
	ZklCircle	suspects = {w->suspects, w->n_suspects};

	return local_waiter->n_held > 0 &&
		(!w->claims || zkl_is_in_circle(suspects, (uint64_t) local_waiter->session_id));
}

static void
add_local_waiters(ZklText *edges, const ZklWaits *w, const ZklWaitReport *report)
{
	int			start;

	zkl_text_add(edges, ".");
	start = edges->length;
	for (int i = 0; i < report->n_local_waiters; i++)
		if (is_listed(w, &report->local_waiters[i]) && edges->length < ZKL_WAIT_NAME_MAX)
			zkl_text_add(edges, "%s%s%" PRIx64, edges->length > start ? "," : "",
						 report->local_waiters[i].only_for_place ? ZKL_WAIT_FOR_PLACE : "",
						 (uint64_t) report->local_waiters[i].session_id);
}

/* Appends the edges of the wait-for graph, as the name contains them (wait_name.h). */
void
zkl__report_edges(ZklText *edges, const ZklRequest *request, const ZklWaitReport *report)
{
	zkl_text_add(edges, ".");
	add_node_sets(edges, request);
	add_local_waiters(edges, zkl__waits(request->session), report);
}

/* Returns what a node in a queue requests, in words. */
static const char *
item_text(const ZklRequest *request, const ZklNode *node)
{
	return request->permit ? "a permit of semaphore"
		: node->mode == ZKL_MODE_EXCLUSIVE ? "exclusive lock" : "shared lock";
}

/* Adds a wait for a permit: the permits parent, and the numbers to compare there. */
static void
add_permit(ZklText *data, const ZklRequest *request, const ZklWaitReport *report)
{
	const ZklPermit *permit = request->permit;

	zkl_text_add(data, "\np\t%s\t%d\t%d\t%s",
				 permit->permits_path + strlen(zkl__config(request->session)->root) + 1,
				 zkl__permit_limit(permit), permit->n_own,
				 item_text(request, request->nodes[0]));
	add_field(data, report->locks[0]);
}

static void
add_queue_entry(ZklText *data, const ZklRequest *request, const ZklNode *node,
				const ZklWaitReport *report)
{
	zkl_text_add(data, "\n%c\t%s\t%s\t%s", node->upgrade ? 'u' : 'w',
				 node->lock_path + strlen(zkl__config(request->session)->root) + 1, node->name,
				 item_text(request, node));
	add_field(data, report->locks[node->index]);
}

/* Adds all holds of a local waiter, or the sign for unknown if they do not fit. */
static void
add_held(ZklText *data, const ZklLocalWaiter *local_waiter)
{
	zkl_text_add(data, "\t");
	if (data->length + (int64_t) local_waiter->n_held * ZKL_HELD_SIZE > ZKL_WAIT_NAME_MAX)
		zkl_text_add(data, "%c", ZKL_HELD_UNKNOWN);
	else
		for (int i = 0; i < local_waiter->n_held; i++)
			zkl_text_add(data, "%c%" PRIx32, local_waiter->held[i].kind,
						 local_waiter->held[i].key);
}

/*
 * Appends the data that the cycle check reads, one line each: the session, its
 * queue entries, its local waiters.
 */
void
zkl__report_data(ZklText *data, const ZklRequest *request, const ZklWaitReport *report)
{
	zkl_text_add(data, "%" PRIx64 "\t%d", report->instance, report->pid);
	add_field(data, report->server);
	if (is_waiting_for_permit(request))
		add_permit(data, request, report);
	for (int i = 0; i < request->n; i++)
		if (is_waiting(request->nodes[i]) && data->length <= ZKL_WAIT_NAME_MAX)
			add_queue_entry(data, request, request->nodes[i], report);
	for (int i = 0; i < report->n_local_waiters; i++)
	{
		if (!is_listed(zkl__waits(request->session), &report->local_waiters[i]) ||
			data->length > ZKL_WAIT_NAME_MAX)
			continue;
		zkl_text_add(data, "\nd\t%" PRIx64 "\t%d",
					 (uint64_t) report->local_waiters[i].session_id,
					 report->local_waiters[i].pid);
		add_field(data, report->local_waiters[i].waits_for);
		add_held(data, &report->local_waiters[i]);
	}
}
