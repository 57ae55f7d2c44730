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
#include <stdlib.h>
#include <string.h>

#include "detector.h"

/* How long the others may take to answer, and how often their reports are read. */
#define ANSWER_MS 2000
#define ANSWER_POLL_MS 25

/* No version of a bell: the next step answers, as after a ring. */
#define NO_BELL (-1)

/* A claim in progress.  The arrays have an element for each report, the own one first. */
typedef struct Claim
{
	ZklDetector *d;
	const ZklDeadlockFound *found;
	int			n;				/* reports */
	char	  **paths;
	int32_t    *bells;			/* the versions of the bells when they rang */
	int32_t    *versions;		/* of the reports that answer; or -1 */
} Claim;

static bool
claim_init(Claim *claim, ZklDetector *d, const ZklDeadlockFound *found)
{
	size_t		n = (size_t) found->n_reports;

	claim->d = d;
	claim->found = found;
	claim->n = found->n_reports;
	claim->paths = zkl__scratch(d, n * sizeof(char *));
	claim->bells = zkl__scratch(d, n * sizeof(int32_t));
	claim->versions = zkl__scratch(d, n * sizeof(int32_t));
	if (claim->paths == NULL || claim->bells == NULL || claim->versions == NULL)
		return false;
	for (int i = 0; i < claim->n; i++)
	{
		char		name[ZKL_WAITING_NAME_SIZE];

		zkl_waiting_name(found->reports[i].session, 0, name);
		claim->paths[i] = zkl__scratch_path(d, zkl__config(d->session)->waiting_path, name);
		claim->versions[i] = -1;
	}
	return true;
}

static bool
ring_others(Claim *claim)
{
	uint64_t   *sessions = zkl__scratch(claim->d, (size_t) claim->n * sizeof(uint64_t));

	for (int i = 1; sessions && i < claim->n; i++)
		sessions[i] = claim->found->reports[i].session;
	return sessions && zkl__ring(claim->d, sessions + 1, claim->n - 1, claim->bells + 1);
}

/* Are all waits that the deadlock needs from a report still the same in a later one? */
static bool
is_unchanged(const ZklDeadlockFound *found, int report, const ZklReport *later)
{
	for (int i = 0; i < found->n_edges; i++)
		if (found->edges[i].report == report &&
			!zkl_report_is_unchanged(found->reports[report].report, later,
									 found->edges[i].waiter))
			return false;
	return true;
}

/* Takes a report that was read again.  Returns false if it rules the deadlock out. */
static bool
take_answer(Claim *claim, int i, const ZklBatchResult *result)
{
	const ZklReport *later;

	if (result->code != ZKL_RC_OK ||
		(uint64_t) result->owner != claim->found->reports[i].session)
		return false;
	later = zkl__scratch_keep(claim->d, zkl_report_decode(result->data, result->data_len));
	if (later == NULL || !is_unchanged(claim->found, i, later))
		return false;
	claim->versions[i] = later->bell >= claim->bells[i] ? result->version : -1;
	return true;
}

/* Reads all reports of others.  Returns false if one of them rules the deadlock out. */
static bool
read_answers(Claim *claim, bool *complete)
{
	ZklOp	   *ops = zkl__scratch(claim->d, (size_t) claim->n * sizeof(ZklOp));
	const ZklBatchResult *results;

	*complete = true;
	if (claim->n == 1)
		return true;
	for (int i = 1; ops && i < claim->n; i++)
		ops[i - 1] = (ZklOp)
	{
		.kind = ZKL_OP_GET, .path = claim->paths[i], .data_len = ZKL_REPORT_MAX
	};
	results = zkl__run(claim->d, ZKL_BATCH_PIPELINED, ops, claim->n - 1);
	for (int i = 1; results && i < claim->n; i++)
	{
		if (!take_answer(claim, i, &results[i - 1]))
			return false;
		*complete = *complete && claim->versions[i] >= 0;
	}
	return results != NULL;
}

/* Waits for the answers of all others, and answers other sessions' rings meanwhile. */
static bool
await_answers(Claim *claim)
{
	ZklDetector *d = claim->d;
	int64_t		until_ms = zkl_now_ms() + ANSWER_MS;
	bool		complete;

	for (;;)
	{
		if (zkl__report_is_rung(d))
			zkl__report_answer(d);
		if (d->is_over || !d->is_published || !read_answers(claim, &complete))
			return false;
		if (complete)
			return true;
		if (zkl_now_ms() >= until_ms)
			return false;
		if (!d->callbacks->pause(d->arg, ANSWER_POLL_MS))
		{
			d->is_over = true;
			return false;
		}
	}
}

/* Looks at the own server after the ring, as all others do. */
static bool
still_waits(ZklDetector *d, const ZklDeadlockFound *found)
{
	ZklReport	now;

	return zkl__report_compose(d, &now) == ZKL_REPORT_NEEDED && is_unchanged(found, 0, &now);
}

/* Adds a check of a node, once. */
static void
add_check(Claim *claim, ZklOp *ops, int *n, const ZklReportNode *node, const char *child)
{
	char	   *path = zkl__scratch_keep(claim->d,
										 zkl_place_path(zkl__config(claim->d->session)->root,
														node->place, node->name, child));

	for (int i = claim->n - 1; path && i < *n; i++)
		if (ops[i].path && strcmp(ops[i].path, path) == 0)
			return;
	ops[(*n)++] = (ZklOp)
	{
		.kind = ZKL_OP_CHECK, .path = path
	};
}

/*
 * The multi: one check for each report and node, and a write that makes the own report
 * invalid.  If it wrote the same report again, another claimant would take that for an answer,
 * and would fail as well.
 */
static bool
give_verdict(Claim *claim)
{
	ZklDetector *d = claim->d;
	const ZklDeadlockFound *found = claim->found;
	ZklOp	   *ops = zkl__scratch(d, (size_t) (claim->n + 2 * found->n_edges) * sizeof(ZklOp));
	const ZklBatchResult *results;
	int			n = 0;

	for (int i = 1; ops && i < claim->n; i++)
		ops[n++] = (ZklOp)
	{
		.kind = ZKL_OP_CHECK_VERSION, .path = claim->paths[i], .version = claim->versions[i]
	};
	for (int i = 0; ops && i < found->n_edges; i++)
		if (found->edges[i].node)
		{
			add_check(claim, ops, &n, found->edges[i].node, found->edges[i].node->child);
			add_check(claim, ops, &n, found->edges[i].node, found->edges[i].blocker);
		}
	if (ops)
		ops[n++] = (ZklOp)
	{
		.kind = ZKL_OP_SET, .path = claim->paths[0], .version = ZKL_ANY_VERSION,
			.data = ""
	};
	results = zkl__run(d, ZKL_BATCH_ATOMIC, ops, n);
	if (results == NULL)
		d->bell_shown = NO_BELL;	/* it may have happened: the report must be written again */
	return results && results[0].code == ZKL_RC_OK;
}

/*
 * Returns whether this session is the one that must fail.  If not, nothing has happened,
 * whatever the reason.
 */
bool
zkl__verdict_claim(ZklDetector *d, const ZklDeadlockFound *found)
{
	Claim		claim;

	return claim_init(&claim, d, found) && ring_others(&claim) && await_answers(&claim) &&
		still_waits(d, found) && give_verdict(&claim);
}


/*
 * The cycle, for the message
 */

static void
describe_edge(const ZklDeadlockFound *found, int i, ZklDeadlockEdge *to)
{
	const ZklCycleEdge *edge = &found->edges[i];
	const ZklReport *report = found->reports[edge->report].report;
	ZklContender contender = {.writer = true};

	to->session_id = (int64_t) edge->session;
	to->instance = report->instance;
	to->server = report->server;
	to->pid = edge->waiter ? edge->waiter->pid : report->pid;
	if (edge->waiter)
		to->waits_for = edge->waiter->waits_for;
	else if (edge->node)
	{
		to->name = edge->node->name;
		if (edge->node->place == ZKL_PLACE_LOCK && zkl_parse_child(edge->node->child, &contender))
			to->mode = contender.writer ? ZKL_MODE_EXCLUSIVE : ZKL_MODE_SHARED;
	}
}

/* Describes the cycle; the texts are those of the snapshot.  Returns false if out of memory. */
bool
zkl__verdict_describe(ZklDetector *d, const ZklDeadlockFound *found)
{
	ZklDeadlockEdge *edges = zkl__scratch(d, (size_t) found->n_cycle * sizeof(ZklDeadlockEdge));

	for (int i = 0; edges && i < found->n_cycle; i++)
		describe_edge(found, i, &edges[i]);
	d->deadlock.n = found->n_cycle;
	d->deadlock.edges = edges;
	return edges != NULL;
}
