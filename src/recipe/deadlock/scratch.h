/*-------------------------------------------------------------------------
 *
 * scratch.h
 *		Memory of one step of a detector, and how the step is left when it cannot go on.
 *
 * If memory or a bound is exhausted, the code that uses it is
 * left with longjmp(), as a callback of the detector may also leave it: so nothing in this
 * folder checks for NULL, and nothing that must be freed is kept elsewhere.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SCRATCH_H
#define ZKL_SCRATCH_H

#include <setjmp.h>
#include <stddef.h>
#include <stdnoreturn.h>

typedef enum ZklLeft
{
	ZKL_LEFT_FAILED = 1,		/* out of memory, no answer, or the wait is over */
	ZKL_LEFT_TOO_MUCH			/* beyond a bound */
} ZklLeft;

/* Starts zeroed. */
typedef struct ZklScratch
{
	struct ZklScratchBlock *blocks;
	jmp_buf		left;			/* set by the caller: gets a ZklLeft */
} ZklScratch;

extern noreturn void zkl__scratch_leave(ZklScratch *scratch, ZklLeft why);

/* Returns zeroed memory. */
extern void *zkl__scratch(ZklScratch *scratch, size_t n, size_t size);

/* Returns a text as printf() prints it. */
extern char *zkl__scratch_text(ZklScratch *scratch, const char *format,...)
			__attribute__((format(printf, 2, 3)));

/* Frees all memory, or what was allocated since "blocks" had this value. */
extern void zkl__scratch_free(ZklScratch *scratch);
extern void zkl__scratch_release(ZklScratch *scratch, const struct ZklScratchBlock *blocks);

#endif							/* ZKL_SCRATCH_H */
