/*-------------------------------------------------------------------------
 *
 * remote_wait.h
 *		Waiting in a queue of the ensemble.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REMOTE_WAIT_H
#define ZKLOCK_REMOTE_WAIT_H

#include "errors.h"
#include "recipe/recipe.h"

/* Waits without limit of its own. */
#define ZKLOCK_NO_LIMIT (-1)

/* How long a call may wait for other holders, and how it has fared. */
typedef struct ZklockPatience
{
	int64		limit_ms;		/* 0: not at all; or ZKLOCK_NO_LIMIT */
	int64		started;		/* zklock_now() when the call began */
	bool		waited;			/* for another holder, in either tier */
	bool		queued;			/* stood in a queue of the ensemble */
	bool		may_step_back;	/* the caller can let go of its place, and queue anew */
	bool		steps_back;		/* ... and has to: the wait ended for that */
} ZklockPatience;

/* What is left of the limit, or ZKLOCK_NO_LIMIT. */
extern int64 zklock_patience_left(const ZklockPatience *patience);

/*
 * The session, connected.  A call that has not queued yet waits for it as long
 * as zklock.connect_timeout says, and throws; one that has, as long as it is
 * willing to wait for the lock: NULL when that has passed.
 */
extern ZklSession *zklock_reach_session(const ZklockPatience *patience,
										const ZklockPurpose *purpose);

/* How a call that needs answers fares with its connection; begins as zeroes. */
typedef struct ZklockContact
{
	int64		unanswered_since;	/* connection lost, and no answer since; or 0 */
	uint64		n_answers;		/* of the ensemble, when last looked */
} ZklockContact;

/*
 * Has the connection been lost for zklock.connect_timeout?  One that comes and
 * goes again without an answer is none.  If not, *look_again says when to ask
 * again.  "n_answers" are those that the session has had by now.
 */
extern bool zklock_contact_is_lost(ZklockContact *contact, ZklSession *session,
								   uint64 n_answers, int64 now, int64 *look_again);

/*
 * Waits for the request under lock_timeout, interruptibly.  "purposes" are
 * those of its "n" wishes.  Returns OK; PENDING or BUSY when the limit
 * has passed, or PENDING when the caller is to step back; SESSION_LOST, LOCK_LOST
 * or OTHER_SIZE; the caller takes what is granted and ends the request.  Throws in
 * all other cases, having ended it.  NULL as request means that memory was exhausted.
 */
extern ZklStatus zklock_await_request(ZklockPatience *patience, ZklSession *session,
									  ZklRequest *request,
									  const ZklockPurpose *purposes, int n);

#endif							/* ZKLOCK_REMOTE_WAIT_H */
