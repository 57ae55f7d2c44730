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

/* Control characters, which could end a line or field, become ? */
static void
make_plain(ZklText *t, int start)
{
	for (int i = start; !t->failed && i < t->length; i++)
		if ((unsigned char) t->text[i] < ' ')
			t->text[i] = '?';
}

/* Appends a tab and the text. */
static void
add_field(ZklText *t, const char *text)
{
	zkl_text_add(t, "\t%s", text);
	make_plain(t, t->length - (int) strlen(text));
}

static bool
is_waiting(const ZklNode *node)
{
	return node->state == NODE_READING || node->state == NODE_WAITING;
}

/*
 * Does the request hold the mutex of a semaphore that is full?  A non-blocking attempt
 * then waits only for permits that are released already.
 */
static bool
is_waiting_for_permit(const ZklRequest *request)
{
	return request->permit && !request->non_blocking && zkl__request_is_first(request) &&
		request->permit->seen == SEEN_FULL;
}

/*
 * Has the session given up a node that still exists, or a writer's node that becomes a
 * reader's?  Waits for it end by themselves.
 */
static bool
has_pending_releases(const ZklSession *session)
{
	for (const ZklNode *node = zkl__nodes(session); node; node = node->next)
		if (zkl__node_is_pending_delete(node) || zkl__node_is_moving(node))
			return true;
	return false;
}

/* Can the wait be reported?  Not while a node changes state or a release is pending. */
bool
zkl__report_is_settled(const ZklRequest *request)
{
	bool		any = is_waiting_for_permit(request);

	if (has_pending_releases(request->session))
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

/* The edges and the data of a report that is composed. */
typedef struct Texts
{
	ZklText    *edges;
	ZklText    *data;
	const ZklRequest *request;
	const ZklWaitReport *report;
} Texts;

/* A wait that does not fit is left out of both. */
static bool
has_room(const Texts *t)
{
	return t->edges->length < ZKL_WAIT_NAME_MAX && t->data->length < ZKL_WAIT_NAME_MAX;
}

/* Separates what follows from an element before it. */
static void
add_separator(ZklText *edges)
{
	if (!edges->failed && edges->text[edges->length - 1] != '.')
		zkl_text_add(edges, ",");
}

/* Adds a line about a wait with n node sets, for a lock or semaphore. */
static void
add_wait(const Texts *t, ZklHeldKind kind, int n, int item)
{
	int			start;

	zkl_text_add(t->data, "\n%c\t%x\t%" PRIx32 "\t", kind, (unsigned) n,
				 t->report->keys[item]);
	start = t->data->length;
	zkl_text_add(t->data, "%s \"%s\"", t->request->permit ? "a permit of semaphore"
				 : kind == ZKL_HELD_EXCLUSIVE ? "exclusive lock" : "shared lock",
				 t->report->locks[item]);
	make_plain(t->data, start);
}

/*
 * Adds one node set with all owners of permits, since any of them may release
 * one.  If they do not all fit, or one is not known, adds none: the set would be wrong.
 */
static void
add_permit(const Texts *t)
{
	const ZklPermit *permit = t->request->permit;

	if (permit->n_owners == 0 || permit->owners[0] == 0 ||
		permit->n_owners * ZKL_WAIT_ID_SIZE > ZKL_WAIT_NAME_MAX)
		return;
	for (int i = 0; i < permit->n_owners; i++)
		zkl_text_add(t->edges, "%s%" PRIx64, i ? "+" : "", permit->owners[i]);
	add_wait(t, ZKL_HELD_PERMIT, 1, 0);
}

/* Adds a node set for each blocker of a node in a queue. */
static void
add_blockers(const Texts *t, const ZklNode *node)
{
	int			n = 0;

	for (; n < node->n_blockers && has_room(t); n++)
	{
		add_separator(t->edges);
		zkl_text_add(t->edges, "%s%" PRIx64, t->request->permit || node->blockers[n].only_for_place
					 ? ZKL_WAIT_FOR_PLACE : "", node->blockers[n].owner);
	}
	if (n > 0)
		add_wait(t, node->mode == ZKL_MODE_EXCLUSIVE ? ZKL_HELD_EXCLUSIVE : ZKL_HELD_SHARED,
				 n, node->index);
}

/*
 * Is the local waiter part of the report?  A session that holds nothing blocks no other
 * session in the ensemble, so it cannot be part of a cycle.  A victim claim lists the
 * suspects alone: as long as they are deadlocked, the claim does not change.
 */
static bool
is_reported(const ZklWaits *w, const ZklLocalWaiter *local_waiter)
{
	ZklCircle	suspects = {w->suspects, w->n_suspects};

	return local_waiter->n_held > 0 &&
		(!w->is_victim_claim || zkl_is_in_circle(suspects, (uint64_t) local_waiter->session_id));
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

static void
add_local_waiter(const Texts *t, const ZklLocalWaiter *local_waiter)
{
	add_separator(t->edges);
	zkl_text_add(t->edges, "%s%" PRIx64, local_waiter->only_for_place ? ZKL_WAIT_FOR_PLACE : "",
				 (uint64_t) local_waiter->session_id);
	zkl_text_add(t->data, "\n%c\t%" PRIx64 "\t%d", ZKL_WAIT_LOCAL,
				 (uint64_t) local_waiter->session_id, local_waiter->pid);
	add_field(t->data, local_waiter->waits_for);
	add_held(t->data, local_waiter);
}

/*
 * Appends the edges of the wait-for graph, as the name contains them (wait_name.h), and
 * the data that the cycle check reads.  The first line of the data is about the session,
 * and each further one about the next node sets of the name:
 *
 *		<instance> <pid> <server>
 *		<x, s or p> <number of node sets> <key> <text>			its waits
 *		d <session> <pid> <text> <holds>						its local waiters
 *
 * A tab separates the fields.  Process ids are decimal, all other numbers hexadecimal.
 */
void
zkl__report_compose(ZklText *edges, ZklText *data, const ZklRequest *request,
					const ZklWaitReport *report)
{
	Texts		t = {edges, data, request, report};

	zkl_text_add(data, "%" PRIx64 "\t%d", report->instance, report->pid);
	add_field(data, report->server);
	zkl_text_add(edges, ".");
	if (is_waiting_for_permit(request))
		add_permit(&t);
	for (int i = 0; i < request->n; i++)
		if (is_waiting(request->nodes[i]))
			add_blockers(&t, request->nodes[i]);
	zkl_text_add(edges, ".");
	for (int i = 0; i < report->n_local_waiters && has_room(&t); i++)
		if (is_reported(zkl__waits(request->session), &report->local_waiters[i]))
			add_local_waiter(&t, &report->local_waiters[i]);
}
