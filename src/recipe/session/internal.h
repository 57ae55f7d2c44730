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

/* A confirmed quorum write. */
typedef struct ZklConfirmation
{
	int64_t		submitted_ms;	/* 0: none */
	int64_t		answered_ms;
} ZklConfirmation;

/* A retry of everything, for one cause. */
typedef struct ZklRetry
{
	int64_t		at_ms;			/* 0: none */
	int64_t		requested_ms;	/* the last time */
	int			delay_ms;		/* then */
} ZklRetry;

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
	int64_t		lease_from_ms;	/* submit time of the last quorum write that renewed the lease */
	int64_t		reached_ms;		/* submit time of the last one, or handshake, that was answered */
	int64_t		trusted_until_ms;	/* what is held is lost then; see lease.c */
	int64_t		deadline_ms;	/* the same while something is held, 0, or OVERDUE; atomic */
	ZklConfirmation settled;	/* the newest settled write; see lease.c */
	ZklConfirmation confirmed;	/* a later one, not settled when it was noted */
	ZklCall    *proof;			/* in flight */
	ZklCall    *list_proof;		/* before lists; in flight */
	int64_t		no_proof_before_ms; /* the last one failed */
	bool		is_dropping;	/* the connection has no answer to a proof and ends */
	bool		grant_waits;	/* a grant waits for a proof */
	int64_t		timer_ms;		/* 0: none set */
	ZklRetry	retries[ZKL_N_RETRY_CAUSES];
	uint64_t	n_answers;		/* calls answered, not lost */
	int64_t		answered_ms;	/* the last one */
	int64_t		keepalive_ms;	/* the last keepalive read */
	unsigned	n_connections;	/* so far */
	int			n_holds;		/* held by higher layers; see trusted_until_ms */
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
extern int	zkl__proof_interval(const ZklSession *session);
extern bool zkl__can_send_proof(const ZklSession *session);
extern bool zkl__needs_proofs(const ZklSession *session);
extern int64_t zkl__proof_due_ms(const ZklSession *session);
extern void zkl__lease_confirmed(const ZklCall *call);
extern int64_t zkl__lease_settled_ms(const ZklSession *session);
extern bool zkl__lease_is_backed(const ZklSession *session);
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
