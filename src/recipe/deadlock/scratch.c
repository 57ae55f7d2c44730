/*-------------------------------------------------------------------------
 *
 * scratch.c
 *		Memory and batches of one step of a detector.
 *
 * Everything is freed when the step ends, whichever way it ends.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "detector.h"

/* A piece of memory, to be freed with the step. */
struct ZklScratch
{
	ZklScratch *next;
	void	   *memory;
};

/* Has malloc'd memory freed with the step; if there is no room to note it, at once. */
void *
zkl__scratch_keep(ZklDetector *d, void *memory)
{
	ZklScratch *scratch = memory ? malloc(sizeof(ZklScratch)) : NULL;

	if (scratch == NULL)
	{
		free(memory);
		return NULL;
	}
	scratch->memory = memory;
	scratch->next = d->scratch;
	d->scratch = scratch;
	return memory;
}

/* Returns zeroed memory, or NULL. */
void *
zkl__scratch(ZklDetector *d, size_t size)
{
	return zkl__scratch_keep(d, calloc(1, size > 0 ? size : 1));
}

char *
zkl__scratch_copy(ZklDetector *d, const char *text)
{
	return zkl__scratch_keep(d, strdup(text));
}

char *
zkl__scratch_path(ZklDetector *d, const char *parent, const char *child)
{
	return zkl__scratch_keep(d, zkl__path(parent, child));
}

static bool
are_complete(const ZklOp *ops, int n)
{
	for (int i = 0; ops && i < n; i++)
		if (ops[i].path == NULL)
			return false;
	return ops != NULL;
}

/*
 * Executes operations and waits for their results, which are valid until the next call.
 * Returns NULL if there are none: the outcome of writes is then unknown.
 */
const ZklBatchResult *
zkl__run(ZklDetector *d, ZklBatchForm form, const ZklOp *ops, int n)
{
	if (d->batch)
		zkl_batch_end(d->batch);
	d->batch = NULL;
	if (!are_complete(ops, n))
		return NULL;
	d->batch = zkl_batch(d->session, form, ops, n);
	if (d->batch == NULL)
		return NULL;
	d->has_waited = true;
	if (!d->callbacks->await(d->arg, d->batch))
	{
		d->is_over = true;
		return NULL;
	}
	return zkl_batch_info(d->batch).status == ZKL_OK ? zkl_batch_results(d->batch) : NULL;
}

void
zkl__step_end(ZklDetector *d)
{
	if (d->batch)
		zkl_batch_end(d->batch);
	d->batch = NULL;
	if (d->snapshot)
		zkl_snapshot_free(d->snapshot);
	d->snapshot = NULL;
	while (d->scratch)
	{
		ZklScratch *scratch = d->scratch;

		d->scratch = scratch->next;
		free(scratch->memory);
		free(scratch);
	}
	d->is_over = false;
}
