/*-------------------------------------------------------------------------
 *
 * stats.h
 *		Counters of events, for the view zk_stat.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_STATS_H
#define ZKLOCK_STATS_H

#include "backend/session/wait.h"

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

/* For shown.c. */
extern void zklock_request_stats(void);
extern void zklock_init_stats(void);

/* The functions below neither throw nor wait nor allocate. */

extern void zklock_count(ZklockStat stat, int64 n);

/* A call acquired "n" locks or permits. */
extern void zklock_count_acquired(const ZklockTimeout *timeout, int n);

/* A call reached its timeout. */
extern void zklock_count_gave_up(const ZklockTimeout *timeout);

/* A call failed; called in PG_CATCH, before the error is flushed. */
extern void zklock_count_failed(const ZklockTimeout *timeout);

/*
 * Counts the answers of the ensemble in a session that has just been opened.  NULL: in
 * none; called before the session is closed.
 */
extern void zklock_count_answers_of(ZklSession *session);

/* Counts the answers that this session has received since the last call. */
extern void zklock_count_round_trips(void);

#endif							/* ZKLOCK_STATS_H */
