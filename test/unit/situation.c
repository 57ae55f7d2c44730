/*-------------------------------------------------------------------------
 *
 * situation.c
 *		Queues and wait reports as a test wants them, and a search that reads them.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe/queue/node_names.h"
#include "situation.h"

#define MAX_TEXT 4096
#define MAX_PLACES 8
#define MAX_SESSIONS 10
#define MAX_NODES 20
#define MAX_LOCALS 8

typedef struct Queue
{
	ZklWaitPlace place;
	char		name[8];
	char		nodes[MAX_NODES][ZKL_CHILD_NAME_SIZE];
	int			n;
} Queue;

typedef struct Report
{
	bool		exists;
	int64_t		czxid;
	uint64_t	owner;
	ZklReport	report;
	ZklWaitNode nodes[MAX_PLACES * 2];
	ZklLocalWaiter waiters[MAX_LOCALS];
	ZklHeld		held[MAX_LOCALS][MAX_LOCALS];
} Report;

static Queue queues[MAX_PLACES];
static int	n_queues;
static Report reports[MAX_SESSIONS];
static int64_t last_czxid;
static int	n_reads;
static ZklScratch scratch;

void
situation_begin(void)
{
	n_queues = 0;
	memset(reports, 0, sizeof(reports));
	last_czxid = 0;
}

static uint32_t
key_of(const char *name)
{
	return (uint32_t) *name;
}


/*
 * Queues
 */

static Queue *
queue_at(ZklWaitPlace place, const char *name)
{
	for (int i = 0; i < n_queues; i++)
		if (queues[i].place == place && strcmp(queues[i].name, name) == 0)
			return &queues[i];
	return NULL;
}

/* Empties the queue, and makes it if it does not exist. */
static Queue *
new_queue(ZklWaitPlace place, const char *name)
{
	Queue	   *queue = queue_at(place, name);

	if (queue == NULL)
		queue = &queues[n_queues++];
	queue->place = place;
	snprintf(queue->name, sizeof(queue->name), "%s", name);
	queue->n = 0;
	return queue;
}

static void
add_nodes(Queue *queue, const char *nodes)
{
	for (; *nodes; nodes += *nodes ? 1 : 0)
	{
		int64_t		session = *nodes - '0';
		ZklMode		mode = nodes[1] == 'R' ? ZKL_MODE_SHARED : ZKL_MODE_EXCLUSIVE;
		char	   *name = queue->nodes[queue->n++];

		if (*nodes == '-')
			strcpy(name, "a-permit-of-another-program");
		else if (queue->place == ZKL_PLACE_PERMITS)
		{
			zkl_permit_prefix(session, 1, name);
			sprintf(name + strlen(name), "%010d", queue->n);
		}
		else
			zkl_child_name(ZKL_NODE_NAMES_CURATOR, mode, session, (uint64_t) queue->n, queue->n,
						   name);
		nodes += strcspn(nodes, " ");
	}
}

void
queue(const char *name, const char *nodes)
{
	add_nodes(new_queue(ZKL_PLACE_LOCK, name), nodes);
}

void
mutex(const char *semaphore, const char *sessions)
{
	add_nodes(new_queue(ZKL_PLACE_MUTEX, semaphore), sessions);
}

void
permits(const char *semaphore, const char *sessions)
{
	add_nodes(new_queue(ZKL_PLACE_PERMITS, semaphore), sessions);
}

static uint64_t
session_of(const char *node)
{
	uint64_t	owner;
	uint64_t	guid_end;

	zkl_parse_guid(node, &owner, &guid_end);
	return owner;
}

/* Returns the session's last node at the place, or one that does not exist. */
static const char *
node_of(ZklWaitPlace place, const char *name, int session)
{
	const Queue *queue = queue_at(place, name);

	for (int i = queue ? queue->n - 1 : -1; i >= 0; i--)
		if (session_of(queue->nodes[i]) == (uint64_t) session)
			return queue->nodes[i];
	return "no-such-node-__WRIT__0000000000";
}

void
forget_node(const char *name, int session)
{
	Queue	   *queue = queue_at(ZKL_PLACE_LOCK, name);
	const char *node = node_of(ZKL_PLACE_LOCK, name, session);

	for (int i = 0; i < queue->n; i++)
		if (queue->nodes[i] == node)
		{
			queue->n--;
			memmove(queue->nodes[i], queue->nodes[queue->n], sizeof(queue->nodes[i]));
		}
}


/*
 * Reports
 */

static void
add_wait(Report *r, ZklWaitPlace place, const char *name, int session, int capacity)
{
	char		component[8];

	snprintf(component, sizeof(component), "%.1s", name);
	r->nodes[r->report.n_nodes++] = (ZklWaitNode)
	{
		place, queue_at(place, component) ? queue_at(place, component)->name : "?",
			node_of(place, component, session), capacity
	};
}

void
waits(int session, const char *places)
{
	Report	   *r = &reports[session];
	int			n_waiters = r->report.n_waiters;

	r->report = (ZklReport)
	{
		.pid = session,.identity = (uint64_t) ++last_czxid,.server = "here",
			.nodes = r->nodes,.waiters = r->waiters,.n_waiters = n_waiters
	};
	if (!r->exists)
		r->czxid = last_czxid;
	r->exists = true;
	r->owner = (uint64_t) session;
	for (; *places; places += strcspn(places, " "), places += *places ? 1 : 0)
		if (*places == '%')
			add_wait(r, ZKL_PLACE_MUTEX, places + 1, session, 0);
		else if (*places == '*')
		{
			add_wait(r, ZKL_PLACE_MUTEX, places + 1, session, 0);
			add_wait(r, ZKL_PLACE_PERMITS, places + 1, session, places[3] - '0');
		}
		else
			add_wait(r, ZKL_PLACE_LOCK, places, session, 0);
}

void
owner_of_report(int session, uint64_t owner)
{
	reports[session].owner = owner;
}

static ZklLocalWaiter *
waiter_of(int session, int behind)
{
	Report	   *r = &reports[behind];

	for (int i = 0; i < r->report.n_waiters; i++)
		if (r->waiters[i].session_id == session)
			return &r->waiters[i];
	return &r->waiters[r->report.n_waiters++];
}

void
local(int session, int behind, const char *held, bool for_place)
{
	ZklLocalWaiter *w = waiter_of(session, behind);

	w->session_id = session;
	w->pid = session;
	w->identity = 1;
	w->waits_for = "a row";
	w->only_for_place = for_place;
	holds(session, behind, held);
}

void
holds(int session, int behind, const char *held)
{
	ZklLocalWaiter *w = waiter_of(session, behind);
	ZklHeld    *list = reports[behind].held[w - reports[behind].waiters];

	w->held = list;
	w->n_held = 0;
	for (; *held; held += strcspn(held, " "), held += *held ? 1 : 0)
		list[w->n_held++] = (ZklHeld)
	{
		key_of(held), held[1] == '*' ? ZKL_HELD_PERMIT
			: held[1] == '-' ? ZKL_HELD_SHARED : ZKL_HELD_EXCLUSIVE
	};
}

void
only_for_place(int session, int behind, bool value)
{
	waiter_of(session, behind)->only_for_place = value;
}


/*
 * The search
 */

static void
add_waiting(ZklSnapshot *s)
{
	char		names[MAX_SESSIONS * MAX_LOCALS][ZKL_WAITING_NAME_SIZE];
	const char *children[MAX_SESSIONS * MAX_LOCALS];
	int			n = 0;

	for (uint64_t i = 0; i < MAX_SESSIONS; i++)
	{
		if (!reports[i].exists)
			continue;
		zkl_waiting_name(i, 0, names[n++]);
		for (int k = 0; k < reports[i].report.n_waiters; k++)
			zkl_waiting_name(i, (uint64_t) reports[i].waiters[k].session_id, names[n++]);
	}
	for (int i = 0; i < n; i++)
		children[i] = names[i];
	zkl_snapshot_add_waiting(s, children, n);
}

static void
answer(ZklSnapshot *s, const ZklWant *want)
{
	const char *children[MAX_NODES];
	const Queue *queue;
	int			length;
	char	   *data;

	n_reads++;
	if (want->kind == ZKL_WANT_REPORT)
	{
		const Report *r = &reports[want->session];

		data = zkl_report_encode(&scratch, &r->report, &length);
		zkl_snapshot_add_report(s, want->session, r->owner, r->czxid, 0, data, length);
		return;
	}
	queue = queue_at(want->place, want->name);
	for (int i = 0; queue && i < queue->n; i++)
		children[i] = queue->nodes[i];
	if (queue)
		zkl_snapshot_add_queue(s, want->place, want->name, key_of(want->name), children, queue->n);
}

ZklSnapshot *
search(int me)
{
	ZklSnapshot *s;
	ZklWant		want;

	zkl__scratch_free(&scratch);
	s = zkl_snapshot_new(&scratch, (uint64_t) me);
	n_reads = 0;
	add_waiting(s);
	while ((want = zkl_snapshot_next(s)).kind != ZKL_WANT_NOTHING)
		answer(s, &want);
	return s;
}

int
reads(void)
{
	return n_reads;
}

const char *
found(int me)
{
	static char text[MAX_TEXT];
	ZklSnapshot *s = search(me);
	ZklDeadlockFound f = zkl_snapshot_find_deadlock(s);
	int			length;

	length = sprintf(text, "%s", f.kind == ZKL_FOUND_NO_REPORT ? "no report"
					 : f.kind == ZKL_FOUND_NOTHING ? "nothing"
					 : f.kind == ZKL_FOUND_VICTIM ? "victim " : "place ");
	if (f.victim)
		length += sprintf(text + length, "%" PRIu64 ": ", f.victim->session);
	for (int i = 0; i < f.n_cycle; i++)
		length += sprintf(text + length, "%s%" PRIu64, i ? ">" : "", f.edges[i]->from->session);
	for (int i = f.n_cycle; i < f.n_edges; i++)
		if (f.edges[i]->node && f.edges[i]->node->place == ZKL_PLACE_PERMITS)
			length += sprintf(text + length, " and %" PRIu64, session_of(f.edges[i]->blocker));
	return text;
}

static int
print_node(char *text, const ZklWaitNode *node, const char *child)
{
	return sprintf(text, " %s%s/%" PRIu64, node->name, node->place == ZKL_PLACE_MUTEX ? "%"
				   : node->place == ZKL_PLACE_PERMITS ? "*" : "", session_of(child));
}

const char *
checks(int me)
{
	static char text[MAX_TEXT];
	ZklSnapshot *s = search(me);
	ZklDeadlockFound f = zkl_snapshot_find_deadlock(s);
	int			length = sprintf(text, "reports");

	for (int i = 0; i < f.n_reports; i++)
	{
		length += sprintf(text + length, " %" PRIu64, f.reports[i]->session);
		for (int k = 0; k < f.n_edges; k++)
			if (zkl_reporter(f.edges[k]) == f.reports[i] && f.edges[k]->waiter)
				length += sprintf(text + length, "(%" PRIu64 ")", f.edges[k]->from->session);
	}
	length += sprintf(text + length, ", nodes");
	for (int i = 0; i < f.n_edges; i++)
		if (f.edges[i]->node)
		{
			length += print_node(text + length, f.edges[i]->node, f.edges[i]->node->child);
			length += print_node(text + length, f.edges[i]->node, f.edges[i]->blocker);
		}
	return text;
}
