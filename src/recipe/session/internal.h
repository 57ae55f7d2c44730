/*-------------------------------------------------------------------------
 *
 * internal.h
 *		The session, and declarations shared only by the files of this folder.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSION_INTERNAL_H
#define ZKL_SESSION_INTERNAL_H

#include <pthread.h>

#include "recipe/batch.h"
#include "lease_clock.h"
#include "session.h"

/* The root and the znodes right below it (session.c). */
#define ZKL_N_PARENTS 5

/*
 * ZooKeeper 3.6.0 to 3.8.0 can forget to answer the only active client of a server
 * until the client sends another request (ZOOKEEPER-4537).  This is long enough that a
 * busy server rarely gets a needless read.
 */
#ifndef KEEPALIVE_MS			/* test/stall also builds without it */
#define KEEPALIVE_MS 100
#endif

/* A retry of everything, for one cause. */
typedef struct ZklRetry
{
	int64_t		at_ms;			/* 0: none */
	int64_t		requested_ms;	/* the last time */
	int			delay_ms;		/* then */
} ZklRetry;

/*
 * What must be so in each state of a session (check_session.c asserts it):
 *
 *					connected	opened_ms	deadline_ms while something is held
 *		CONNECTING	no			0			0
 *		CONNECTED	yes			set			clock.trusted_until_ms, or OVERDUE
 *		SUSPENDED	no			set			the same
 *		EXPIRED		maybe		maybe		0, unless its owner has closed it
 *		AUTH_FAILED	no			maybe		0
 *
 * Only a session in a final state, one of the last two, is_gone, is_left or is_ending; one that
 * is_unproven is EXPIRED.  In a final state, calls are freed without an answer, so pointers to
 * calls in nodes and requests are not valid any more.
 */
struct ZklSession
{
	pthread_mutex_t mutex;
	ZklQueues  *queues;			/* in the same chunk of memory, like the locks */
	ZklLocks   *locks;
	ZklConfig	config;
	ZklClient  *client;
	int			wait_fd;		/* epoll: wakeup_fd and what the client adds */
	int			wakeup_fd;
	bool		wake_due;		/* wakeup_fd must be made readable at the unlock */
	bool		woken;			/* it is readable, or about to be */
	bool		owner_reads;	/* in zkl_session_receive(): needs no wakeup */
	ZklSessionState state;
	bool		client_connected;	/* also in a final state */
	bool		is_gone;		/* the ensemble has ended the session, or never had it */
	bool		is_unproven;	/* given up: the ensemble did not confirm it in time */
	bool		is_left;		/* closed by its owner while disconnected */
	bool		is_ending;		/* the client is closing */
	ZklConnectionInfo connection;
	int64_t		opened_ms;		/* when first connected */
	ZklLeaseClock clock;
	int64_t		deadline_ms;	/* clock.trusted_until_ms while something is held, 0, or OVERDUE; atomic */
	ZklCall    *proof;			/* in flight */
	ZklCall    *list_proof;		/* before lists; in flight */
	bool		is_dropping;	/* the connection has no answer to a proof and ends */
	bool		grant_waits;	/* a grant waits for a proof */
	int64_t		timer_ms;		/* 0: none set */
	ZklRetry	retries[ZKL_N_RETRY_CAUSES];
	uint64_t	n_answers;		/* calls answered, not lost */
	int64_t		answered_ms;	/* the last one */
	int64_t		keepalive_ms;	/* the last keepalive read */
	unsigned	n_connections;	/* so far */
	int			n_holds;		/* held by higher layers; see deadline_ms */
	int			n_relied;		/* ... that the owner relies on, and that are not lost */
	ZklUses    *garbage;		/* of subjects to be freed */

	bool		creator_acl;
	bool		are_acls_read;	/* of the parents, or they are being read */
	bool		has_open_parents;	/* others may change one of these parents */

	ZklCall    *calls;
	ZklCall    *last_call;

	ZklBatch   *batches;
	bool		batches_wait;	/* answers were lost, but not the connection: for the retry */
};

/* session_state.c */
extern void zkl__sweep(ZklSession *session);

/* lease.c */
extern int64_t zkl__lease_left(const ZklSession *session);
extern bool zkl__can_send_proof(const ZklSession *session);
extern bool zkl__needs_proofs(const ZklSession *session);
extern void zkl__lease_confirmed(const ZklCall *call);
extern void zkl__lease_note_holds(ZklSession *session);
extern void zkl__session_end(ZklSession *session, ZklSessionState state);
extern void zkl__session_give_up(ZklSession *session);
extern bool zkl__lease_answered(ZklSession *session);
extern void zkl__lease_arm(ZklSession *session);
extern bool zkl__lease_has_expired(const ZklSession *session, int64_t now);

/* proofs.c */
extern void zkl__proofs_connected(ZklSession *session);

/* calls.c */
extern void zkl__arm_keepalive(ZklSession *session);

/* batch.c */
extern void zkl__batches_free(ZklSession *session);


#endif							/* ZKL_SESSION_INTERNAL_H */
