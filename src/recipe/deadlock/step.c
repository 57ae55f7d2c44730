/*-------------------------------------------------------------------------
 *
 * step.c
 *		Batches of one step of a detector.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "detector.h"

const char *
zkl__step_path(ZklDetector *d, const char *parent, uint64_t session, uint64_t local)
{
	char		name[ZKL_WAITING_NAME_SIZE];

	zkl_waiting_name(session, local, name);
	return zkl__scratch_text(&d->scratch, "%s/%s", parent, name);
}

const ZklResult *
zkl__step_run(ZklDetector *d, ZklBatchForm form, const ZklOp *ops, int n)
{
	ZklStatus	status;

	if (d->batch)
		zkl_batch_end(d->batch);
	d->batch = zkl_batch(d->session, form, ops, n);
	if (d->batch == NULL)
		zkl__scratch_leave(&d->scratch, ZKL_LEFT_FAILED);
	d->has_waited = true;
	if (!d->callbacks->await(d->arg, d->batch))
		zkl__scratch_leave(&d->scratch, ZKL_LEFT_FAILED);
	status = zkl_batch_info(d->batch).status;
	if (status != ZKL_OK)
		zkl__scratch_leave(&d->scratch, status == ZKL_TOO_MANY ? ZKL_LEFT_TOO_MUCH : ZKL_LEFT_FAILED);
	return zkl_batch_results(d->batch);
}

void
zkl__step_pause(ZklDetector *d, int ms)
{
	d->has_waited = true;
	if (!d->callbacks->pause(d->arg, ms))
		zkl__scratch_leave(&d->scratch, ZKL_LEFT_FAILED);
}

void
zkl__step_check(ZklDetector *d, const ZklOp *ops, int n)
{
	if (n > ZKL_BATCH_MAX_OPS || zkl_ops_bytes(ops, n) > ZKL_BATCH_MAX_ATOMIC_BYTES)
		zkl__scratch_leave(&d->scratch, ZKL_LEFT_TOO_MUCH);
}

ZklResultCode
zkl__step_write(ZklDetector *d, const ZklOp *ops, int n)
{
	ZklPublished before = d->published;
	const ZklResult *results;

	zkl__step_check(d, ops, n);
	d->published = ZKL_UNCERTAIN;
	results = zkl__step_run(d, ZKL_BATCH_ATOMIC, ops, n);
	d->published = before;
	for (int i = 0; i < n; i++)
		if (results[i].code != ZKL_RC_OK && results[i].code != ZKL_RC_ROLLED_BACK)
			return results[i].code;
	return results[0].code;
}

void
zkl__step_end(ZklDetector *d)
{
	if (d->batch)
		zkl_batch_end(d->batch);
	d->batch = NULL;
	free(d->wait);
	d->wait = NULL;
	zkl__scratch_free(&d->scratch);
}
