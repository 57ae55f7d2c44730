/*-------------------------------------------------------------------------
 *
 * stats.h
 *		Counters of what happened, for the view zk_stat.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_STATS_H
#define ZKLOCK_STATS_H

#include "remote_wait.h"

typedef enum ZklockStat
{
	ZKLOCK_STAT_ACQUISITIONS,
	ZKLOCK_STAT_WAITS,
	ZKLOCK_STAT_WAIT_MS,
	ZKLOCK_STAT_TIMEOUTS,
	ZKLOCK_STAT_CANCELS,
	ZKLOCK_STAT_DEADLOCKS,
	ZKLOCK_STAT_SESSIONS_OPENED,
	ZKLOCK_STAT_SESSIONS_LOST,
	ZKLOCK_STAT_LOCKS_LOST,
	ZKLOCK_STAT_COMMITS_REFUSED,
	ZKLOCK_STAT_REVOCATIONS,
	ZKLOCK_STAT_ROUND_TRIPS,
	ZKLOCK_STAT_LOCK_TABLE_READS,
	ZKLOCK_N_STATS
} ZklockStat;

/* To be called once, from _PG_init(): makes the counters the server's if it is preloaded. */
extern void zklock_init_stats(void);

/* The functions below neither throw nor wait nor allocate. */

extern void zklock_count(ZklockStat stat, int64 n);

/* A call obtained "n" locks or permits. */
extern void zklock_count_acquired(const ZklockPatience *patience, int n);

/* A call's limit passed. */
extern void zklock_count_gave_up(const ZklockPatience *patience);

/* A call failed; in PG_CATCH, before the error is flushed. */
extern void zklock_count_failed(const ZklockPatience *patience);

/* Counts the answers of the ensemble since this was last called. */
extern void zklock_count_round_trips(void);

/* The next session's answers are counted from none. */
extern void zklock_forget_round_trips(void);

#endif							/* ZKLOCK_STATS_H */
