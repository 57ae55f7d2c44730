/*-------------------------------------------------------------------------
 *
 * publish.c
 *		The report of the own wait, and the bell with which other sessions ask whether it
 *		still holds.
 *
 * One multi creates the report, the bell, and an empty znode for each local waiter, so that
 * a list shows all sessions that can be stuck.  An answer to a ring proves that the wait,
 * and the waits on the server, lasted when the bell rang.  So the bell is read first, with a
 * watch; then the owner looks at its server and its nodes; then the report is written, with
 * the version of the bell.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "detector.h"

/* How often the ensemble may refuse the report before it is not tried any more. */
#define MAX_ATTEMPTS 5

static char *
report_path(ZklDetector *d)
{
	return zkl__scratch_path(d, zkl__config(d->session)->waiting_path, d->name);
}

static char *
bell_path(ZklDetector *d)
{
	return zkl__scratch_path(d, zkl__config(d->session)->bells_path, d->name);
}

static char *
local_path(ZklDetector *d, uint64_t local)
{
	char		name[ZKL_WAITING_NAME_SIZE];

	zkl_waiting_name(d->me, local, name);
	return zkl__scratch_path(d, zkl__config(d->session)->waiting_path, name);
}


/*
 * What there is to report
 */

static bool
is_waiting(const ZklNode *node)
{
	return node->state == NODE_READING || node->state == NODE_WAITING;
}

/* Does the request hold the mutex of a semaphore that is full? */
static bool
waits_for_permit(const ZklRequest *request)
{
	return request->permit && !request->non_blocking && zkl__request_is_first(request) &&
		request->permit->seen == SEEN_FULL && request->permit->permit_node;
}

/*
 * Is a node given up that still exists, or a writer's node about to become a reader's?
 * Waits for it end by themselves, so the session reports nothing meanwhile.
 */
static bool
has_pending_releases(const ZklSession *session)
{
	for (const ZklNode *node = zkl__nodes(session); node; node = node->next)
		if (zkl__node_is_pending_delete(node) || zkl__node_is_moving(node))
			return true;
	return false;
}

/* Does the request wait, and no node of it change its state? */
static bool
has_settled(const ZklRequest *request)
{
	bool		any = waits_for_permit(request);

	if (request->status != ZKL_PENDING || has_pending_releases(request->session))
		return false;
	for (int i = 0; i < request->n; i++)
	{
		const ZklNode *node = request->nodes[i];

		if (is_waiting(node))
			any = true;
		else if (node->state != NODE_HELD)
			return false;
	}
	return any;
}

/*
 * Can another session wait for this one, apart from its local waiters?  For one that holds
 * nothing and waits with one node, others wait only where they also wait for its blockers,
 * unless it is a writer that keeps readers behind it from other readers.
 */
static bool
may_block(const ZklRequest *request)
{
	if (request->n > 1)
		return true;
	for (const ZklNode *node = zkl__nodes(request->session); node; node = node->next)
		if (node->state == NODE_HELD)
			return true;
	return request->nodes[0]->follows_reader;
}

/* Appends a node to the report. */
static void
add_report_node(ZklDetector *d, ZklReport *report, ZklReportNode *nodes, ZklWaitPlace place,
				const ZklNode *node)
{
	const ZklPermit *permit = d->request->permit;
	const char *path = permit ? permit->semaphore_path : node->lock_path;

	nodes[report->n_nodes++] = (ZklReportNode)
	{
		.place = place,
			.name = zkl__scratch_copy(d, strrchr(path, '/') + 1),
			.child = zkl__scratch_copy(d, node->name),
			.capacity = place == ZKL_PLACE_PERMITS ? permit->capacity : 0
	};
}

/* The names of nodes are unique, so they identify the wait. */
static uint64_t
wait_identity(const ZklReport *report)
{
	uint64_t	hash = UINT64_C(14695981039346656037);	/* FNV-1a */

	for (int i = 0; i < report->n_nodes; i++)
		for (const char *c = report->nodes[i].child; *c; c++)
			hash = (hash ^ (unsigned char) *c) * UINT64_C(1099511628211);
	return hash;
}

/* Is there room for all texts?  They are NULL if memory was exhausted. */
static bool
has_all_texts(const ZklReport *report)
{
	for (int i = 0; i < report->n_nodes; i++)
		if (report->nodes[i].name == NULL || report->nodes[i].child == NULL)
			return false;
	return true;
}

/* Adds where the request waits; returns whether it waits, and *blocks as may_block(). */
static bool
add_nodes(ZklDetector *d, ZklReport *report, bool *blocks)
{
	const ZklRequest *request = d->request;
	ZklReportNode *nodes = zkl__scratch(d, ((size_t) request->n + 1) * sizeof(ZklReportNode));

	report->nodes = nodes;
	if (nodes == NULL)
		return false;
	zkl__session_lock(d->session);
	for (int i = 0; has_settled(request) && i < request->n; i++)
		if (request->permit)
			add_report_node(d, report, nodes, ZKL_PLACE_MUTEX, request->nodes[i]);
		else if (is_waiting(request->nodes[i]))
			add_report_node(d, report, nodes, ZKL_PLACE_LOCK, request->nodes[i]);
	if (has_settled(request) && waits_for_permit(request))
		add_report_node(d, report, nodes, ZKL_PLACE_PERMITS, request->permit->permit_node);
	*blocks = report->n_nodes > 0 && may_block(request);
	zkl__session_unlock(d->session);
	return report->n_nodes > 0 && has_all_texts(report);
}

/* Adds the local waiters that hold something; others block no session in the ensemble. */
static bool
add_local_waiters(ZklDetector *d, ZklReport *report)
{
	const ZklLocalWaiter *local_waiters;
	int			n = d->callbacks->look(d->arg, &local_waiters);
	ZklReportWaiter *waiters = zkl__scratch(d, ((size_t) n + 1) * sizeof(ZklReportWaiter));

	report->waiters = waiters;
	for (int i = 0; waiters && i < n; i++)
		if (local_waiters[i].n_held > 0)
			waiters[report->n_waiters++] = (ZklReportWaiter)
		{
			.session = (uint64_t) local_waiters[i].session_id,
				.pid = local_waiters[i].pid,
				.identity = local_waiters[i].identity,
				.only_for_place = local_waiters[i].only_for_place,
				.held = local_waiters[i].held,
				.n_held = local_waiters[i].n_held,
				.waits_for = local_waiters[i].waits_for
		};
	return waiters != NULL;
}

/* Composes the report of the wait as it is now; its memory lasts as long as the step. */
ZklReportState
zkl__report_compose(ZklDetector *d, ZklReport *report)
{
	bool		blocks;

	*report = (ZklReport)
	{
		.instance = d->config.instance, .pid = d->config.pid, .server = d->config.server,
			.bell = d->bell_shown
	};
	if (!add_nodes(d, report, &blocks) || !add_local_waiters(d, report))
		return ZKL_REPORT_UNSETTLED;
	report->identity = wait_identity(report);
	return blocks || report->n_waiters > 0 ? ZKL_REPORT_NEEDED : ZKL_REPORT_NOT_NEEDED;
}


/*
 * Publishing
 */

/* Deletes the report, which may exist or not, without waiting. */
void
zkl__report_withdraw(ZklDetector *d)
{
	d->is_published = false;
	if (d->bell)
		zkl_batch_end(d->bell);
	d->bell = NULL;
	free(d->data);
	d->data = NULL;
	free(d->locals);
	d->locals = NULL;
	d->n_locals = 0;
	zkl__own_nodes_leave(d->session, NULL);
}

/*
 * The ensemble has refused it.  If another program has removed, or made, one of the nodes, it
 * may do so again and again.
 */
static void
refused(ZklDetector *d, ZklResultCode code)
{
	if (!d->is_published && zkl__is_refusal(code))
		zkl__own_nodes_forget(d->session);
	zkl__report_withdraw(d);
	d->is_refused = ++d->attempts >= MAX_ATTEMPTS ||
		(code != ZKL_RC_NODE_EXISTS && code != ZKL_RC_NO_NODE);
}

static bool
is_local(const uint64_t *locals, int n, uint64_t session)
{
	for (int i = 0; i < n; i++)
		if (locals[i] == session)
			return true;
	return false;
}

/* Remembers what is written.  Returns false if memory is exhausted. */
static bool
note_written(ZklDetector *d, const ZklReport *report, const char *data, int length)
{
	uint64_t   *locals = calloc((size_t) report->n_waiters + 1, sizeof(uint64_t));
	char	   *copy = strdup(data);

	if (locals == NULL || copy == NULL)
	{
		free(locals);
		free(copy);
		return false;
	}
	for (int i = 0; i < report->n_waiters; i++)
		locals[i] = report->waiters[i].session;
	for (int i = 0; i < d->n_locals; i++)
	{
		char	   *path = local_path(d, d->locals[i]);

		if (path && !is_local(locals, report->n_waiters, d->locals[i]))
			zkl__own_nodes_leave(d->session, path);
	}
	free(d->locals);
	d->locals = locals;
	d->n_locals = report->n_waiters;
	free(d->data);
	d->data = copy;
	d->data_len = length;
	d->bell_shown = report->bell;
	d->is_published = true;
	d->attempts = 0;
	return true;
}

static ZklOp
create_own(ZklDetector *d, const char *path, const char *data, int length)
{
	bool		noted = path && zkl__own_nodes_add(d->session, path);

	return (ZklOp)
	{
		.kind = ZKL_OP_CREATE,
			.path = noted ? path : NULL,
			.create_kind = ZKL_CREATE_EPHEMERAL,
			.data = data,
			.data_len = length
	};
}

/* Creates the parents; another session may do the same.  Returns false if that is refused. */
static bool
make_parents(ZklDetector *d)
{
	const ZklConfig *config = zkl__config(d->session);
	ZklOp		ops[2] = {
		{.kind = ZKL_OP_CREATE, .path = config->waiting_path, .data = ""},
		{.kind = ZKL_OP_CREATE, .path = config->bells_path, .data = ""}
	};
	const ZklBatchResult *results = zkl__run(d, ZKL_BATCH_PIPELINED, ops, 2);

	for (int i = 0; results && i < 2; i++)
		if (results[i].code != ZKL_RC_OK && results[i].code != ZKL_RC_NODE_EXISTS)
			d->is_refused = true;
	return results && !d->is_refused;
}

/* Returns why an atomic batch failed: the code of the operation that did. */
static ZklResultCode
failure_of(const ZklBatchResult *results, int n)
{
	for (int i = 0; i < n; i++)
		if (results[i].code != ZKL_RC_OK && results[i].code != ZKL_RC_ROLLED_BACK)
			return results[i].code;
	return results[0].code;
}

/*
 * Lists the operations that replace the published report, or create it and the bell, and
 * create the znodes of new local waiters.  Returns their number.
 */
static int
list_ops(ZklDetector *d, const ZklReport *report, const char *data, int length, ZklOp *ops)
{
	ZklOp		set = {
		.kind = ZKL_OP_SET, .path = report_path(d), .version = ZKL_ANY_VERSION,
		.data = data, .data_len = length
	};
	int			n = 0;

	if (d->is_published)
		ops[n++] = set;
	else
	{
		ops[n++] = create_own(d, report_path(d), data, length);
		ops[n++] = create_own(d, bell_path(d), "", 0);
	}
	for (int i = 0; i < report->n_waiters; i++)
		if (!is_local(d->locals, d->n_locals, report->waiters[i].session))
			ops[n++] = create_own(d, local_path(d, report->waiters[i].session), "", 0);
	return n;
}

/*
 * Writes the report.  If the outcome is unknown, withdraws it, to begin again.  A delete that
 * is not finished comes first.
 */
static bool
write_report(ZklDetector *d, const ZklReport *report)
{
	ZklOp	   *ops = zkl__scratch(d, ((size_t) report->n_waiters + 2) * sizeof(ZklOp));
	int			length = 0;
	char	   *data = zkl_report_encode(report, &length);
	const ZklBatchResult *results;
	int			n;

	d->is_limited = d->is_limited || data == NULL;
	data = zkl__scratch_keep(d, data);
	if (ops == NULL || data == NULL || zkl__own_nodes_are_leaving(d->session))
		return false;
	n = list_ops(d, report, data, length, ops);
	results = zkl__run(d, ZKL_BATCH_ATOMIC, ops, n);
	if (results && failure_of(results, n) == ZKL_RC_NO_NODE && !d->is_published)
		results = make_parents(d) ? zkl__run(d, ZKL_BATCH_ATOMIC, ops, n) : NULL;
	if (results && results[0].code == ZKL_RC_OK && note_written(d, report, data, length))
		return true;
	if (results && results[0].code != ZKL_RC_OK)
		refused(d, failure_of(results, n));
	else
		zkl__report_withdraw(d);
	return false;
}

/* Reads the bell, with a watch. */
static bool
read_bell(ZklDetector *d)
{
	ZklOp		op = {.kind = ZKL_OP_GET, .path = bell_path(d), .watch = true, .data_len = 1};
	const ZklBatchResult *results;

	if (d->bell)
		zkl_batch_end(d->bell);
	d->bell = NULL;
	results = zkl__run(d, ZKL_BATCH_PIPELINED, &op, 1);
	if (results == NULL)
		return false;
	if (results->code != ZKL_RC_OK || results->owner != (int64_t) d->me)
	{
		refused(d, results->code == ZKL_RC_OK ? ZKL_RC_NODE_EXISTS : results->code);
		return false;
	}
	d->bell_version = results->version;
	d->bell = d->batch;
	d->batch = NULL;
	return true;
}

/* Publishes the wait if others must know of it. */
bool
zkl__report_publish(ZklDetector *d)
{
	ZklReport	report;

	d->bell_shown = 0;
	if (d->is_refused || zkl__own_nodes_are_leaving(d->session) ||
		zkl__report_compose(d, &report) != ZKL_REPORT_NEEDED || !write_report(d, &report))
		return false;
	return read_bell(d);
}

/* Does the report say something else than the published one? */
static bool
has_changed(ZklDetector *d, const ZklReport *report)
{
	int			length;
	char	   *data = zkl__scratch_keep(d, zkl_report_encode(report, &length));

	return data == NULL || length != d->data_len || memcmp(data, d->data, (size_t) length) != 0;
}

/* Publishes what has changed.  Returns whether something has. */
bool
zkl__report_update(ZklDetector *d)
{
	ZklReport	report;
	ZklReportState state = zkl__report_compose(d, &report);

	if (state == ZKL_REPORT_NOT_NEEDED)
		zkl__report_withdraw(d);
	return state == ZKL_REPORT_NEEDED && has_changed(d, &report) && write_report(d, &report);
}

/* Has the bell rung since the published report was composed, as far as is known? */
bool
zkl__report_is_rung(const ZklDetector *d)
{
	return d->is_published && (d->bell == NULL || d->bell_version != d->bell_shown ||
							   zkl_batch_info(d->bell).is_outdated);
}

/*
 * Answers, if the session still waits.  Not while that is not settled: then the caller tries
 * again soon.
 */
void
zkl__report_answer(ZklDetector *d)
{
	bool		must_read = d->bell == NULL || zkl_batch_info(d->bell).is_outdated;
	ZklReport	report;
	ZklReportState state;

	if ((must_read && !read_bell(d)) || d->bell_version == d->bell_shown)
		return;
	state = zkl__report_compose(d, &report);
	report.bell = d->bell_version;
	if (state == ZKL_REPORT_NOT_NEEDED)
		zkl__report_withdraw(d);
	else if (state == ZKL_REPORT_NEEDED)
		(void) write_report(d, &report);
}
