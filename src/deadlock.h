/*-------------------------------------------------------------------------
 *
 * deadlock.h
 *		Deadlocks across servers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DEADLOCK_H
#define ZKLOCK_DEADLOCK_H

#include "errors.h"
#include "recipe/recipe.h"

/* One long wait in the ensemble; begins zeroed. */
typedef struct ZklockVigil
{
	ZklTale		tale;			/* what others are told */
	bool		may_step_back;	/* the caller's, from the beginning */
	MemoryContext scan_context; /* of its dependents; NULL: not begun */
	bool		scanned;
	uint64		long_waits;		/* when last scanned */
} ZklockVigil;

/*
 * Tells others of a wait that has lasted for deadlock_timeout, and looks.  To
 * be called whenever the wait is looked at; *look_again is when at the latest.
 * "purposes" are those of its wishes.  Throws 40P01; or returns true, if
 * it may, when the caller is to step back instead: it only keeps a place in the
 * queue, and its failing would end nothing.
 */
extern bool zklock_look_for_deadlock(ZklockVigil *vigil, ZklRequest *request,
									 const ZklRequestInfo *info,
									 const ZklockPurpose *purposes, int n,
									 int64 *look_again);

/* The wait is over.  What is left after an error goes with the caller's memory. */
extern void zklock_end_vigil(ZklockVigil *vigil);

#endif							/* ZKLOCK_DEADLOCK_H */
