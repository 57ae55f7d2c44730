/*-------------------------------------------------------------------------
 *
 * cycle_check.h
 *		The cycle check: verifies a reported deadlock by the data of the reports.
 *
 * A victim fails only after all members have read their queues again and reported
 * again.  The check reads the data of these reports.  The node of each report must belong to
 * the session whose wait it reports.  Waits that end by themselves are left out.
 *
 *		cycle_check.c		reads the data
 *		check_result.c		parses them, searches the reports again, describes the cycle
 *		released.c			drops waits that end by themselves
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_CYCLE_CHECK_H
#define ZKL_CYCLE_CHECK_H

#include "waits.h"

/* Bounds of a check: bytes of one report's data, and of all.  Beyond them it fails. */
#define ZKL_CHECK_MAX_DATA 131072
#define ZKL_CHECK_MAX_BYTES 8000000

/* A member of the deadlock that has published a report. */
typedef struct ZklParticipant
{
	const ZklWaitNode *node;	/* its report */
	ZklCall    *read_call;
	char	   *data;			/* cut into fields by zkl_check_result() */
	uint64_t	instance;
	int			pid;
	const char *server;
} ZklParticipant;

/* One wait of a participant, or of a local waiter. */
typedef struct ZklCheckWait
{
	const ZklParticipant *participant;
	uint64_t	session;
	int			pid;
	const char *waits_for;
	char		kind;			/* requested: a ZklHeldKind; or ZKL_WAIT_LOCAL */
	uint32_t	key;			/* of the requested lock or semaphore */
} ZklCheckWait;

/* A hold of a local waiter, or a mark whether its holds are known (released.c). */
typedef struct ZklCheckHeld
{
	uint64_t	session;
	uint32_t	key;
	char		kind;
} ZklCheckHeld;

struct ZklCycleCheck
{
	ZklNames   *names;			/* of all reports */
	ZklWaitReports reports;
	ZklParticipant *participants;
	int			n_participants;
	ZklCheckWait *waits;		/* "source" of the participants' node sets */
	int			n_waits;
	ZklCheckHeld *held;			/* by local waiters */
	int			n_held;
	size_t		bytes;			/* of the data */
	int			outstanding;	/* reads without an answer */
	bool		failed;
	bool		keeps_place;	/* see ZklDeadlock */
};

/* cycle_check.c */
extern void zkl__check_free(ZklCycleCheck *check);
extern bool zkl__check_begin(ZklSession *session, ZklWaitReports *reports, ZklNames **names,
							 bool keeps_place);

/*
 * check_result.c: called without the mutex; touches nothing but the check.  Returns the
 * deadlock of "me" within the circle, or NULL.  Sets "failed" if the data are malformed
 * or memory is exhausted.
 */
extern ZklDeadlock *zkl_check_result(ZklCycleCheck *check, uint64_t me, ZklCircle circle);

/* released.c: without the mutex, too. */
extern bool zkl_check_read_held(ZklCycleCheck *check, uint64_t session, const char *text);
extern void zkl_check_drop_released(ZklCycleCheck *check);

#endif							/* ZKL_CYCLE_CHECK_H */
