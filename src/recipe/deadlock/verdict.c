/*-------------------------------------------------------------------------
 *
 * verdict.c
 *		The verdict: proves that a deadlock is real, and that this session alone fails.
 *
 * Let t0 be the moment when the bells of the other reporters have rung.  The search has seen
 * all nodes of the cycle before t0, and their names are unique: if they exist when the
 * verdict's multi checks them, they existed at t0.  Each reporter has looked at its server
 * after t0, as the version of the bell in its report proves, and its waits are those that it
 * had reported before t0.  So at t0 all edges of the cycle held together.
 *
 * The multi also writes the own report, and checks that nobody else's report has changed.
 * So of two verdicts about one cycle only one succeeds, and there is no claim that a
 * session could leave behind.  Any failure means that nothing has happened.
 *
 *-------------------------------------------------------------------------
 */
#include "detector.h"
#include "recipe/queue/node_names.h"

/* How long the others may take to answer, and how often their reports are read. */
#define ANSWER_MS 2000
#define ANSWER_POLL_MS 25

/* Are all waits that the deadlock needs from a report still the same in a later one? */
static bool
is_unchanged(const ZklDeadlockFound *found, const ZklVertex *reporter, const ZklReport *later)
{
	for (int i = 0; i < found->n_edges; i++)
		if (zkl_reporter(found->edges[i]) == reporter &&
			!zkl_report_is_unchanged(reporter->report, later, found->edges[i]->waiter))
			return false;
	return true;
}

/*
 * Takes a report that was read again.  Returns false if it rules the deadlock out; clears
 * *complete if it does not answer the ring.
 */
static bool
take_answer(ZklDetector *d, const ZklDeadlockFound *found, ZklVertex *reporter,
			const ZklResult *result, bool *complete)
{
	const ZklReport *later = result->code != ZKL_RC_OK ? NULL
		: zkl_report_decode(&d->scratch, result->data, result->data_len);

	if (later == NULL || (uint64_t) result->owner != reporter->session ||
		!is_unchanged(found, reporter, later))
		return false;
	reporter->version = result->version;
	*complete = *complete && later->bell >= reporter->bell;
	return true;
}

/* Reads all reports of others.  Returns false if one of them rules the deadlock out. */
static bool
read_answers(ZklDetector *d, const ZklDeadlockFound *found, bool *complete)
{
	const struct ZklScratchBlock *before = d->scratch.blocks;
	bool		possible = true;
	ZklOp	   *ops = zkl__scratch(&d->scratch, (size_t) found->n_reports, sizeof(ZklOp));
	const ZklResult *results;

	*complete = true;
	for (int i = 1; i < found->n_reports; i++)
		ops[i] = (ZklOp)
	{
		.kind = ZKL_OP_GET,
			.path = zkl__step_path(d, d->waiting_path,
								   found->reports[i]->session, 0)
	};
	results = zkl__step_run(d, ZKL_BATCH_PIPELINED, ops + 1, found->n_reports - 1);
	for (int i = 1; i < found->n_reports && possible; i++)
		possible = take_answer(d, found, found->reports[i], &results[i - 1], complete);
	zkl__scratch_release(&d->scratch, before);
	return possible;
}

/* Waits for the answers of all others, and answers other sessions' rings meanwhile. */
static bool
await_answers(ZklDetector *d, const ZklDeadlockFound *found)
{
	int64_t		until_ms = zkl_now_ms() + ANSWER_MS;
	bool		complete;

	for (;;)
	{
		if (zkl__report_is_rung(d))
			(void) zkl__report_write(d);
		if (d->published != ZKL_PUBLISHED || !read_answers(d, found, &complete))
			return false;
		if (complete || zkl_now_ms() >= until_ms)
			return complete;
		zkl__step_pause(d, ANSWER_POLL_MS);
	}
}

/* Looks at the own server after the ring, as all others do. */
static bool
still_waits(ZklDetector *d, const ZklDeadlockFound *found)
{
	ZklReport	now;
	bool		is_needed;

	return zkl__report_compose(d, &now, &is_needed) &&
		is_unchanged(found, found->reports[0], &now);
}

static ZklOp
check_op(ZklDetector *d, const ZklWaitNode *node, const char *child)
{
	const char *parent = zkl_place_path(&d->scratch, d->root, node->place,
										node->name);

	return (ZklOp)
	{
		.kind = ZKL_OP_CHECK, .path = zkl__scratch_text(&d->scratch, "%s/%s", parent, child)
	};
}

/*
 * The multi: checks of each report and node, and a write that makes the own report
 * invalid.  If it wrote the same report again, another claimant would take that for an answer,
 * and would fail as well.
 */
static bool
give_verdict(ZklDetector *d, const ZklDeadlockFound *found)
{
	const char *waiting = d->waiting_path;
	ZklOp	   *ops = zkl__scratch(&d->scratch, (size_t) (found->n_reports + 2 * found->n_edges), sizeof(ZklOp));
	int			n = 0;

	for (int i = 0; i < found->n_reports; i++)
		ops[n++] = (ZklOp)
	{
		.kind = i == 0 ? ZKL_OP_SET : ZKL_OP_CHECK_VERSION,
			.path = zkl__step_path(d, waiting, found->reports[i]->session, 0),
			.version = i == 0 ? ZKL_ANY_VERSION : found->reports[i]->version,
			.data = ""
	};
	for (int i = 0; i < found->n_edges; i++)
		if (found->edges[i]->node)
		{
			ops[n++] = check_op(d, found->edges[i]->node, found->edges[i]->node->child);
			ops[n++] = check_op(d, found->edges[i]->node, found->edges[i]->blocker);
		}
	return zkl__step_write(d, ops, n) == ZKL_RC_OK;
}

/*
 * Returns whether this session is the one that must fail.  If not, nothing has happened,
 * whatever the reason.
 */
bool
zkl__verdict_is_victim(ZklDetector *d, const ZklDeadlockFound *found)
{
	return zkl__ring(d, found->reports + 1, found->n_reports - 1) && await_answers(d, found) &&
		still_waits(d, found) && give_verdict(d, found);
}


/*
 * The cycle, for the message
 */

static void
describe_edge(const ZklEdge *edge, ZklDeadlockEdge *to)
{
	const ZklLocalWaiter *waiter = edge->waiter;
	const ZklReport *report = zkl_reporter(edge)->report;
	ZklContender contender = {.writer = true};

	to->session_id = (int64_t) edge->from->session;
	to->server = report->server;
	to->pid = waiter ? waiter->pid : report->pid;
	to->waits_for = waiter ? waiter->waits_for : NULL;
	if (edge->node == NULL)
		return;
	to->name = edge->node->name;
	if (edge->node->place == ZKL_PLACE_LOCK && zkl_parse_child(edge->node->child, &contender))
		to->mode = contender.writer ? ZKL_MODE_EXCLUSIVE : ZKL_MODE_SHARED;
}

void
zkl__verdict_describe(ZklDetector *d, const ZklDeadlockFound *found)
{
	ZklDeadlockEdge *edges = zkl__scratch(&d->scratch, (size_t) found->n_cycle, sizeof(ZklDeadlockEdge));

	for (int i = 0; i < found->n_cycle; i++)
		describe_edge(found->edges[i], &edges[i]);
	d->deadlock.n = found->n_cycle;
	d->deadlock.edges = edges;
}
