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
#include <stdlib.h>

#include "detector.h"

/* How many reads are in one batch. */
#define READS_AT_ONCE 100

static const ZklDeadlockFound nothing = {.found = ZKL_FOUND_NOTHING};

static ZklOp
op_for(ZklDetector *d, const ZklWant *want)
{
	char		name[ZKL_WAITING_NAME_SIZE];
	ZklOp		op = {.kind = ZKL_OP_LIST};

	if (want->kind == ZKL_WANT_QUEUE)
	{
		op.path = zkl__scratch_keep(d, zkl_place_path(zkl__config(d->session)->root,
													  want->place, want->name, NULL));
		return op;
	}
	zkl_waiting_name(want->session, 0, name);
	op.kind = ZKL_OP_GET;
	op.path = zkl__scratch_path(d, zkl__config(d->session)->waiting_path, name);
	op.data_len = ZKL_REPORT_MAX;
	return op;
}

/* Adds an answer.  Another program may have removed the own report. */
static void
add_answer(ZklDetector *d, const ZklWant *want, const ZklBatchResult *result)
{
	if (want->kind == ZKL_WANT_REPORT && want->session == d->me &&
		(result->code == ZKL_RC_NO_NODE || (uint64_t) result->owner != d->me))
		d->is_removed = true;
	if (result->code != ZKL_RC_OK)
		return;
	if (want->kind == ZKL_WANT_QUEUE)
		zkl_snapshot_add_queue(d->snapshot, want->place, want->name,
							   d->callbacks->key_of(d->arg, want->name),
							   result->children, result->n_children);
	else
		zkl_snapshot_add_report(d->snapshot, want->session, (uint64_t) result->owner,
								result->czxid, result->version, result->data, result->data_len);
}

/* Lists all reports.  Returns false if that is not possible, or there are none. */
static bool
read_waiting(ZklDetector *d)
{
	const char *path = zkl__config(d->session)->waiting_path;
	ZklOp		ops[2] = {
		{.kind = ZKL_OP_SYNC, .path = path},
		{.kind = ZKL_OP_LIST, .path = path}
	};
	const ZklBatchResult *results = zkl__run(d, ZKL_BATCH_PIPELINED, ops, 2);

	if (results == NULL || results[0].code != ZKL_RC_OK || results[1].code != ZKL_RC_OK)
		return false;
	zkl_snapshot_add_waiting(d->snapshot, results[1].children, results[1].n_children);
	return true;
}

/* Reads the next part of what is wanted: returns how much, or -1 if that is not possible. */
static int
read_more(ZklDetector *d, ZklWant *wants)
{
	ZklOp	   *ops = zkl__scratch(d, READS_AT_ONCE * sizeof(ZklOp));
	const ZklBatchResult *results;
	int			n = 0;

	while (ops && n < READS_AT_ONCE)
	{
		wants[n] = zkl_snapshot_next(d->snapshot);
		if (wants[n].kind == ZKL_WANT_NOTHING)
			break;
		ops[n] = op_for(d, &wants[n]);
		n++;
	}
	if (ops == NULL || n == 0)
		return ops ? 0 : -1;
	results = zkl__run(d, ZKL_BATCH_PIPELINED, ops, n);
	for (int i = 0; results && i < n; i++)
		add_answer(d, &wants[i], &results[i]);
	return results ? n : -1;
}

/* Searches for a deadlock of this session; the result is valid until the next search. */
ZklDeadlockFound
zkl__search(ZklDetector *d)
{
	ZklWant    *wants = zkl__scratch(d, READS_AT_ONCE * sizeof(ZklWant));
	int			n;

	d->is_removed = false;
	if (d->snapshot)
		zkl_snapshot_free(d->snapshot);
	d->snapshot = zkl_snapshot_new(d->me);
	if (wants == NULL || d->snapshot == NULL || !read_waiting(d))
		return nothing;
	while ((n = read_more(d, wants)) > 0)
		;
	return n < 0 ? nothing : zkl_snapshot_find_deadlock(d->snapshot);
}

/*
 * Rings the bells of these sessions: they look again whether they wait.  Stores the versions
 * of the bells, unless that is NULL.  Returns false if one of them may not have rung.
 */
bool
zkl__ring(ZklDetector *d, const uint64_t *sessions, int n, int32_t *versions)
{
	ZklOp	   *ops = zkl__scratch(d, (size_t) n * sizeof(ZklOp));
	const ZklBatchResult *results;

	for (int i = 0; ops && i < n; i++)
	{
		char		name[ZKL_WAITING_NAME_SIZE];

		zkl_waiting_name(sessions[i], 0, name);
		ops[i] = (ZklOp)
		{
			.kind = ZKL_OP_SET,
				.path = zkl__scratch_path(d, zkl__config(d->session)->bells_path, name),
				.data = "", .version = ZKL_ANY_VERSION
		};
	}
	if (ops == NULL || n == 0)
		return ops != NULL;
	results = zkl__run(d, ZKL_BATCH_PIPELINED, ops, n);
	for (int i = 0; results && i < n; i++)
	{
		if (results[i].code != ZKL_RC_OK)
			return false;
		if (versions)
			versions[i] = results[i].version;
	}
	return results != NULL;
}
