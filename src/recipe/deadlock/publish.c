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


/*
 * What there is to report
 */

/*
 * Composes the report of the wait as it is now.  Valid until the owner looks again.
 * Returns false if the wait is changing, or a release is pending.  *is_needed: another
 * session can wait for this one.
 */
bool
zkl__report_compose(ZklDetector *d, ZklReport *report, bool *is_needed)
{
	free(d->wait);
	d->wait = zkl_request_wait(d->request);
	if (d->wait == NULL)
		zkl__scratch_leave(&d->scratch, ZKL_LEFT_FAILED);
	if (d->wait->n_nodes == 0)
		return false;
	*report = (ZklReport)
	{
		.pid = d->config.pid, .server = d->config.server,
			.nodes = d->wait->nodes, .n_nodes = d->wait->n_nodes
	};

	/* The names of nodes are unique, so they identify the wait. */
	report->identity = ZKL_HASH;
	for (int i = 0; i < report->n_nodes; i++)
		report->identity = zkl_hash(report->identity, report->nodes[i].child, strlen(report->nodes[i].child));
	report->n_waiters = d->callbacks->find_waiters(d->arg, &report->waiters);
	*is_needed = d->wait->may_block || report->n_waiters > 0;
	return true;
}


/*
 * Publishing
 */

/* Deletes a znode of the report, which may exist or not, without waiting. */
static void
delete_znode(ZklDetector *d, const char *parent, uint64_t local)
{
	char		name[ZKL_WAITING_NAME_SIZE];

	zkl_waiting_name(d->me, local, name);
	zkl_delete_later(d->session, parent, name);
}

/* Deletes the report, which may exist or not. */
void
zkl__report_withdraw(ZklDetector *d)
{
	if (d->published == ZKL_PUBLISHED || d->published == ZKL_UNCERTAIN)
	{
		zkl_releases_begin(d->session);
		delete_znode(d, d->waiting_path, 0);
		delete_znode(d, d->bells_path, 0);
		for (int i = 0; i < d->n_locals; i++)
			delete_znode(d, d->waiting_path, d->locals[i]);
		zkl_releases_end(d->session);
		d->published = ZKL_UNPUBLISHED;
	}
	if (d->bell)
		zkl_batch_end(d->bell);
	d->bell = NULL;
	d->bell_version = d->bell_shown = 0;
	d->n_locals = 0;
}

/* Is the delete of a znode of an earlier report not finished?  A create must not overtake it. */
static bool
is_withdrawing(const ZklDetector *d)
{
	return zkl_is_deleting_below(d->session, d->waiting_path) ||
		zkl_is_deleting_below(d->session, d->bells_path);
}

/* Notes the local waiters whose znodes may exist from now on, before the earlier ones. */
static void
note_locals(ZklDetector *d, const ZklReport *report)
{
	int			n = report->n_waiters;

	if (n + d->n_locals > ZKL_BATCH_MAX_OPS)
		zkl__scratch_leave(&d->scratch, ZKL_LEFT_TOO_MUCH);
	memmove(d->locals + n, d->locals, (size_t) d->n_locals * sizeof(d->locals[0]));
	for (int i = 0; i < n; i++)
		d->locals[i] = (uint64_t) report->waiters[i].session_id;
	d->n_locals += n;
}

static ZklOp
report_op(ZklOpKind kind, const char *path, const char *data, int length)
{
	return (ZklOp)
	{
		.kind = kind, .path = path, .create_kind = ZKL_CREATE_EPHEMERAL,
			.data = data, .data_len = length, .version = ZKL_ANY_VERSION
	};
}

/*
 * Lists the operations that create the report and the bell, or replace the published report
 * and the znodes of local waiters.  Returns their number.
 */
static int
list_ops(ZklDetector *d, const ZklReport *report, const char *data, int length, ZklOp *ops)
{
	ZklOpKind	kind = d->published == ZKL_PUBLISHED ? ZKL_OP_SET : ZKL_OP_CREATE;
	const char *path = zkl__step_path(d, d->waiting_path, d->me, 0);
	int			n = 0;

	ops[n++] = report_op(kind, path, data, length);
	if (kind == ZKL_OP_CREATE)
	{
		path = zkl__step_path(d, d->bells_path, d->me, 0);
		ops[n++] = report_op(ZKL_OP_CREATE, path, "", 0);
	}
	for (int i = 0; i < d->n_locals; i++)
	{
		path = zkl__step_path(d, d->waiting_path, d->me, d->locals[i]);
		ops[n++] = report_op(ZKL_OP_DELETE, path, NULL, 0);
	}
	for (int i = 0; i < report->n_waiters; i++)
	{
		path = zkl__step_path(d, d->waiting_path, d->me,
							  (uint64_t) report->waiters[i].session_id);
		ops[n++] = report_op(ZKL_OP_CREATE, path, "", 0);
	}
	return n;
}

/* Creates the parents; another session may do the same.  Returns NO_AUTH, or OK. */
static ZklResultCode
make_parents(ZklDetector *d)
{
	ZklOp		ops[2] = {
		{.kind = ZKL_OP_CREATE, .path = d->waiting_path, .data = ""},
		{.kind = ZKL_OP_CREATE, .path = d->bells_path, .data = ""}
	};
	const ZklResult *results = zkl__step_run(d, ZKL_BATCH_PIPELINED, ops, 2);

	return results[0].code == ZKL_RC_NO_AUTH || results[1].code == ZKL_RC_NO_AUTH
		? ZKL_RC_NO_AUTH : ZKL_RC_OK;
}

/* Writes the report.  If that fails, the report is withdrawn, to begin again. */
static bool
write_report(ZklDetector *d, const ZklReport *report, const char *data, int length)
{
	ZklOp	   *ops = zkl__scratch(&d->scratch, (size_t) (report->n_waiters + d->n_locals) + 2, sizeof(ZklOp));
	int			n = list_ops(d, report, data, length, ops);
	ZklResultCode code;

	zkl__step_check(d, ops, n); /* before the local waiters are noted: else there would be ever more */
	note_locals(d, report);
	code = zkl__step_write(d, ops, n);
	if (code == ZKL_RC_NO_NODE && d->published == ZKL_UNPUBLISHED)
	{
		code = make_parents(d);
		if (code == ZKL_RC_OK)
			code = zkl__step_write(d, ops, n);
	}
	if (code == ZKL_RC_OK)
	{
		d->published = ZKL_PUBLISHED;
		d->n_locals = report->n_waiters;
		d->written = zkl_hash(ZKL_HASH, data, (size_t) length);
		d->bell_shown = report->bell;
		return true;
	}
	zkl__report_withdraw(d);
	if (code == ZKL_RC_NO_AUTH)
		d->published = ZKL_REFUSED;
	return false;
}

/* Reads the bell, with a watch.  Another program may have removed it. */
static void
read_bell(ZklDetector *d)
{
	ZklOp		op = {.kind = ZKL_OP_GET, .watch = true};
	const ZklResult *result;

	if (d->bell)
		zkl_batch_end(d->bell);
	d->bell = NULL;
	op.path = zkl__step_path(d, d->bells_path, d->me, 0);
	result = zkl__step_run(d, ZKL_BATCH_PIPELINED, &op, 1);
	if (result->code != ZKL_RC_OK)
	{
		d->published = ZKL_UNCERTAIN;
		zkl__scratch_leave(&d->scratch, ZKL_LEFT_FAILED);
	}
	d->bell_version = result->version;
	d->bell = d->batch;
	d->batch = NULL;
}

/* Does the watch on the bell not work, or has it fired? */
static bool
must_read_bell(const ZklDetector *d)
{
	return d->bell == NULL || zkl_batch_info(d->bell).is_outdated;
}

/*
 * Publishes the wait if it must be reported, or writes what has changed, or answers a
 * ring.  Returns whether something was written.  Not while the wait is not settled: then the
 * caller tries again soon.
 */
bool
zkl__report_write(ZklDetector *d)
{
	ZklReport	report;
	bool		is_needed;
	const char *data;
	int			length;

	if (d->published == ZKL_UNCERTAIN)
		zkl__report_withdraw(d);
	if (d->published == ZKL_REFUSED || is_withdrawing(d))
		return false;
	if (d->published == ZKL_PUBLISHED && must_read_bell(d))
		read_bell(d);
	if (!zkl__report_compose(d, &report, &is_needed) ||
		(d->published == ZKL_UNPUBLISHED && !is_needed))
		return false;
	report.bell = d->bell_version;
	data = zkl_report_encode(&d->scratch, &report, &length);
	if ((d->published == ZKL_PUBLISHED && d->written == zkl_hash(ZKL_HASH, data, (size_t) length)) ||
		!write_report(d, &report, data, length))
		return false;
	if (must_read_bell(d))
		read_bell(d);
	return true;
}

/* Has the bell rung since the published report was composed, as far as is known? */
bool
zkl__report_is_rung(const ZklDetector *d)
{
	return d->published == ZKL_PUBLISHED && (must_read_bell(d) || d->bell_version != d->bell_shown);
}
