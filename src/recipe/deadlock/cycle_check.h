/*-------------------------------------------------------------------------
 *
 * cycle_check.h
 *		The cycle check: verifies a reported deadlock against the queues.
 *
 * A report is as old as its node, its blocker may have left since, and any client
 * that can write below <root>/waits can forge one.  So a victim fails only after
 * the reports of all members were read again, each from a node that its own
 * session owns, and their queues show the same waits.
 *
 *		cycle_check.c		reads the data and lists the queues
 *		check_result.c		parses them, and searches them for the deadlock
 *		released.c			drops waits that end by themselves
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_CYCLE_CHECK_H
#define ZKL_CYCLE_CHECK_H

#include "waits.h"

/*
 * Bounds of a check: bytes of one report's data, queue entries of all reports,
 * children of each queue, bytes of all data and lists together, and children
 * visited for all queue entries together.  Beyond them the check fails.
 */
#define ZKL_CHECK_MAX_DATA 131072
#define ZKL_CHECK_MAX_ENTRIES 4000
#define ZKL_CHECK_MAX_CHILDREN 50000
#define ZKL_CHECK_MAX_BYTES 8000000
#define ZKL_CHECK_MAX_READS 1000000

/* A member of the deadlock that has published a report. */
typedef struct ZklParticipant
{
	uint64_t	session;
	ZklCall    *read_call;
	char	   *data;			/* cut into fields by zkl_check_parse() */
	uint64_t	instance;
	int			pid;
	char	   *server;
} ZklParticipant;

/* A participant's place in a queue, or its wait for one of a semaphore's permits. */
typedef struct ZklQueueEntry
{
	int			participant;
	bool		upgrade;
	bool		any;			/* a permit: one of the blockers suffices */
	char	   *path;			/* below the root */
	char	   *child;			/* its node in a queue */
	int			limit;			/* permit nodes up to which it would get a permit */
	int			n_own;			/* its session's nodes among the permits */
	char	   *item;			/* "exclusive lock" and the like */
	char	   *lock;
	uint64_t   *blockers;
	int			n_blockers;
} ZklQueueEntry;

/* The children of one path; n queue entries, from "first" on, are about it. */
typedef struct ZklCheckList
{
	int			first;
	int			n;
	ZklCall    *list_call;
	ZklNames   *names;			/* NULL: not read */
} ZklCheckList;

/* A session that waits for a participant in the lock manager of its server. */
typedef struct ZklReportedWaiter
{
	int			participant;
	uint64_t	session;
	int			pid;
	char	   *waits_for;
} ZklReportedWaiter;

/* A hold of a local waiter, or a mark whether its holds are known (released.c). */
typedef struct ZklCheckHeld
{
	uint64_t	session;
	uint32_t	key;
	char		kind;
} ZklCheckHeld;

struct ZklCycleCheck
{
	ZklParticipant *participants;	/* ascending by session */
	int			n_participants;
	ZklQueueEntry *queue_entries;	/* sorted by path once the data are parsed */
	int			n_queue_entries;
	ZklCheckList *lists;
	int			n_lists;
	ZklReportedWaiter *waiters;
	int			n_waiters;
	ZklCheckHeld *held;			/* by local waiters; sorted once the data are parsed */
	int			n_held;
	size_t		bytes;			/* of the data and the lists */
	int			outstanding;	/* calls without an answer */
	bool		understood;		/* the data are parsed, and the lists requested */
	bool		failed;
};

/* cycle_check.c */
extern void zkl__check_free(ZklCycleCheck *check);
extern void zkl__check_begin(ZklSession *session, const ZklWaitReports *reports);
extern void zkl__check_list_queues(ZklSession *session);

/* Computes the key of a lock's or semaphore's name; see ZklWaitReport.key_of. */
typedef uint32_t (*ZklKeyOf) (const char *name, size_t length);

/*
 * check_result.c: called without the mutex; they touch nothing but the check.
 * zkl_check_parse() returns false for malformed data or exhausted memory.
 * zkl_check_result() returns the deadlock of "me" within the circle, or NULL.
 */
extern bool zkl_check_parse(ZklCycleCheck *check);
extern ZklDeadlock *zkl_check_result(ZklCycleCheck *check, uint64_t me, ZklCircle circle,
									 ZklKeyOf key_of);

/* Makes room for element n of an array; returns false if memory is exhausted. */
extern bool zkl_check_grow(void **array, int n, size_t size);

/* released.c: without the mutex, too. */
extern bool zkl_check_read_held(ZklCycleCheck *check, uint64_t session, const char *text);
extern void zkl_check_sort_held(ZklCycleCheck *check);
extern void zkl_check_drop_released(const ZklCycleCheck *check, ZklQueueEntry *queue_entry, ZklKeyOf key_of);

#endif							/* ZKL_CYCLE_CHECK_H */
