/*-------------------------------------------------------------------------
 *
 * fence_rule.h
 *		When a fence needs no question to the ensemble, and what it stores.
 *
 * Pure functions: no PostgreSQL, no I/O.  fence.c explains and uses them;
 * test/unit/test_fence_schedules.c runs them through every schedule of some holders.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FENCE_RULE_H
#define ZKLOCK_FENCE_RULE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The newest fence of an exclusive holder, and of a sharer, of the names that share this pair.
 * Each value is stored only once, so a component that has changed never has its old value again.
 */
typedef struct ZklockFencePair
{
	uint64_t	x;
	uint64_t	s;
} ZklockFencePair;

/* What a hold remembers; zeroed: the ensemble must be asked. */
typedef struct ZklockFenceMark
{
	ZklockFencePair pair;		/* before its node was created, or at its last fence */
	bool		is_known;		/* "pair" has a value */
	bool		has_stored;		/* has fenced since its grant, or since its last upgrade */
} ZklockFenceMark;

/* Called before the create of the node is submitted. */
static inline void
zklock_fence_rule_remember(ZklockFenceMark *mark, ZklockFencePair now)
{
	mark->pair = now;
	mark->is_known = true;
	mark->has_stored = false;
}

/*
 * Called after an upgrade.  A sharer that held the lock since the last time that this hold was
 * exclusive remembers what this hold stored then.
 */
static inline void
zklock_fence_rule_upgraded(ZklockFenceMark *mark)
{
	mark->has_stored = false;
}

/* Can no conflicting holder have fenced since the node of this hold was created? */
static inline bool
zklock_fence_rule_is_sure(const ZklockFenceMark *mark, ZklockFencePair now, bool exclusive)
{
	return mark->is_known && mark->pair.x == now.x && (!exclusive || mark->pair.s == now.s);
}

/* Called by a fence that passes.  Returns the pair to store; "fresh" is a value never used before. */
static inline ZklockFencePair
zklock_fence_rule_pass(ZklockFenceMark *mark, ZklockFencePair now, bool exclusive, uint64_t fresh)
{
	if (!mark->has_stored && exclusive)
		now.x = fresh;
	else if (!mark->has_stored)
		now.s = fresh;
	mark->pair = now;
	mark->is_known = true;
	mark->has_stored = true;
	return now;
}

#endif							/* ZKLOCK_FENCE_RULE_H */
