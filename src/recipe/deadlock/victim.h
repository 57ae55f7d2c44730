/*-------------------------------------------------------------------------
 *
 * victim.h
 *		Chooses the victim of a deadlock among the reported waits.
 *
 * Exactly one session is to fail, and its failure must break a cycle.  Of the
 * members that hold something that another member waits for, the one whose report
 * is the newest is the victim, so members that see the same reports choose the
 * same victim.  If they saw different reports, the first victim claim counts.
 *
 * Pure functions: no I/O, no state, any thread.  They allocate.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_VICTIM_H
#define ZKL_VICTIM_H

#include "wait_name.h"

/*
 * The reason why other members of the deadlock wait for a member with a report.  The
 * lowest rank is the best victim: its failure lets a waiter proceed.
 */
typedef enum ZklRank
{
	ZKL_RANK_HOLDER,			/* something that it holds */
	ZKL_RANK_LOCAL_PLACE,		/* only its place, for a local waiter: it can requeue */
	ZKL_RANK_PLACE				/* only its place in a queue of the ensemble */
} ZklRank;

/* The result of a search. */
typedef struct ZklChoice
{
	bool		is_mine;		/* my node is the newest one of my session */
	uint64_t   *members;		/* of the deadlock */
	int			n;				/* 0: no deadlock; < 0: see zkl_find_deadlock() */
	bool		other_claims;	/* another member has claimed, before any claim of mine */
	bool		mine_is_last;	/* my report is the newest one of all members */
	ZklRank		rank;			/* my rank */
	const ZklWaitNode *best;	/* the victim if nobody claims; NULL if not known */
	ZklRank		best_rank;
} ZklChoice;

/*
 * Searches for a deadlock of session "me", whose node has this name, among all
 * reports, or, if that node is a victim claim, among the suspects.  The caller
 * frees "members".
 */
extern void zkl_choose(const ZklWaitReports *reports, uint64_t me, const char *name,
					   ZklCircle suspects, ZklChoice *v);

#endif							/* ZKL_VICTIM_H */
