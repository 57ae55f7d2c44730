/*-------------------------------------------------------------------------
 *
 * search.c
 *		Reads what a deadlock of this session could consist of.
 *
 * Begins with the list of all reports, behind a sync, and reads only the queues and reports
 * that find_deadlock.h asks for: where this session waits, who blocks there, and so on.
 *
 *-------------------------------------------------------------------------
 */
#include "detector.h"

static ZklOp
read_op(ZklDetector *d, const ZklWant *want)
{
	if (want->kind == ZKL_WANT_QUEUE)
		return (ZklOp)
	{
		.kind = ZKL_OP_LIST,
			.path = zkl_place_path(&d->scratch, d->root, want->place, want->name)
	};
	return (ZklOp)
	{
		.kind = ZKL_OP_GET,
			.path = zkl__step_path(d, d->waiting_path, want->session, 0)
	};
}

static void
add_answer(ZklDetector *d, ZklSnapshot *snapshot, const ZklWant *want,
		   const ZklResult *result)
{
	if (result->code != ZKL_RC_OK)
		return;
	if (want->kind == ZKL_WANT_QUEUE)
		zkl_snapshot_add_queue(snapshot, want->place, want->name,
							   d->callbacks->key_of(d->arg, want->name),
							   result->children, result->n_children);
	else
		zkl_snapshot_add_report(snapshot, want->session, (uint64_t) result->owner,
								result->czxid, result->version, result->data, result->data_len);
}

static void
read_waiting(ZklDetector *d, ZklSnapshot *snapshot)
{
	const char *path = d->waiting_path;
	ZklOp		ops[2] = {
		{.kind = ZKL_OP_SYNC, .path = path},
		{.kind = ZKL_OP_LIST, .path = path}
	};
	const ZklResult *results = zkl__step_run(d, ZKL_BATCH_PIPELINED, ops, 2);

	if (results[0].code != ZKL_RC_OK || results[1].code != ZKL_RC_OK)
		zkl__scratch_leave(&d->scratch, ZKL_LEFT_FAILED);
	zkl_snapshot_add_waiting(snapshot, results[1].children, results[1].n_children);
}

ZklDeadlockFound
zkl__search(ZklDetector *d)
{
	ZklSnapshot *snapshot = zkl_snapshot_new(&d->scratch, d->me);
	ZklWant    *wants = zkl__scratch(&d->scratch, ZKL_SEARCH_MAX_READS, sizeof(ZklWant));
	ZklOp	   *ops = zkl__scratch(&d->scratch, ZKL_SEARCH_MAX_READS, sizeof(ZklOp));
	int			n;

	read_waiting(d, snapshot);
	do
	{
		const ZklResult *results;

		for (n = 0; (wants[n] = zkl_snapshot_next(snapshot)).kind != ZKL_WANT_NOTHING; n++)
			ops[n] = read_op(d, &wants[n]);
		results = zkl__step_run(d, ZKL_BATCH_PIPELINED, ops, n);
		for (int i = 0; i < n; i++)
			add_answer(d, snapshot, &wants[i], &results[i]);
	} while (n > 0);
	return zkl_snapshot_find_deadlock(snapshot);
}

bool
zkl__ring(ZklDetector *d, ZklVertex *const *reports, int n)
{
	ZklOp	   *ops = zkl__scratch(&d->scratch, (size_t) n, sizeof(ZklOp));
	const ZklResult *results;
	bool		all = true;

	for (int i = 0; i < n; i++)
		ops[i] = (ZklOp)
	{
		.kind = ZKL_OP_SET, .data = "", .version = ZKL_ANY_VERSION,
			.path = zkl__step_path(d, d->bells_path, reports[i]->session, 0)
	};
	results = zkl__step_run(d, ZKL_BATCH_PIPELINED, ops, n);
	for (int i = 0; i < n; i++)
	{
		all = all && results[i].code == ZKL_RC_OK;
		reports[i]->bell = results[i].version;
	}
	return all;
}
