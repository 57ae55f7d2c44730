/*-------------------------------------------------------------------------
 *
 * session.h
 *		A ZooKeeper session and its calls in flight.
 *
 *		session.c		the session and its connection
 *		calls.c			calls in flight
 *		codes.c			the meaning of their result codes
 *		timers.c		retries, keepalive reads, deadlines
 *		lease.c			how long the ensemble certainly keeps the session
 *		open_parents.c	which znodes above the locks others may change
 *		status.c		texts of statuses
 *
 * Threads.  A session advances on its owner's thread and on the I/O thread of its client
 * (zookeeper/io_thread.c).  While the I/O thread is in a call that blocks, the substitute
 * thread runs the timer in its place.  One mutex for each session guards everything that
 * this layer and the higher ones keep about it; no thread waits while it holds the mutex.
 *
 *		function						thread			mutex held when called
 *		zkl_... (recipe.h)				owner			none; takes the session's
 *		done_io, watch_io,
 *		connection_io					any [1]			library's; takes the session's
 *		timer_io						I/O, substitute	none; takes the session's
 *		abandoned_io					I/O				none; frees the session
 *		zkl__... [2], ZklHandler,
 *		ZklUses, ZklSessionPart [3]		any				session's
 *		on_loss_io, on_revoke_io		any				session's
 *
 * [1] The thread that drives the library: I/O, the owner in zkl_client_exchange(), any in
 * zkl_client_flush().  [2] Except where a comment says otherwise.  [3] on_free is called
 * without the mutex, when no other thread has the session any more.
 *
 * The suffix _io marks callbacks of the client library, the client and the I/O thread,
 * and the functions of the log and the backend that they reach.  It means "may run on a
 * thread other than the owner's": the function must not call PostgreSQL.  Functions of
 * src/recipe without the suffix may run on any thread, too, as the table says.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSION_H
#define ZKL_SESSION_H

#include <pthread.h>

#include "recipe/recipe.h"
#include "recipe/zookeeper/client.h"

typedef struct ZklNode ZklNode;
typedef struct ZklCall ZklCall;
typedef struct ZklWaits ZklWaits;
typedef struct ZklLastGrants ZklLastGrants;
typedef struct ZklEmptyParents ZklEmptyParents;

typedef void (*ZklHandler) (ZklCall *call, const ZklResult *result);

/* Part of a subject of calls, which must exist until the last of them is answered. */
typedef struct ZklUses
{
	int			calls;			/* in flight */
	void		(*on_idle) (void *subject); /* none is in flight any more */
} ZklUses;

/* An operation in flight. */
struct ZklCall
{
	ZklCompletion completion;	/* first: the client knows only this */
	ZklSession *session;
	ZklCall    *prev;			/* in session->calls, oldest first */
	ZklCall    *next;
	int64_t		submitted_ms;
	bool		is_keepalive;	/* a keepalive read: no code waits for it */
	bool		confirms;		/* a quorum write: OK renews the lease */
	bool		needs_sync;		/* a list whose sync has not succeeded yet */
	ZklCall    *partner;		/* the sync before a list, and the reverse */
	ZklHandler	handler;
	void	   *subject;		/* for the handler, or NULL */
	ZklUses    *uses;			/* the subject's, or NULL; counts this call */
	void	   *detail;			/* a second subject */
	ZklUses    *detail_uses;
};

/*
 * What a higher layer does with each session.  All handlers except on_free are called
 * with the session's mutex held; each of them may be NULL.
 */
typedef struct ZklSessionPart
{
	/* a new connection: answers and watches of the earlier one may be lost */
	void		(*on_connected) (ZklSession *session);
	void		(*on_watch) (ZklSession *session, const char *path);
	/* sends what must be sent and was not sent, or not answered */
	void		(*on_drive) (ZklSession *session);
	/* the timer has fired, for this part or for another one */
	void		(*on_timer) (ZklSession *session, int64_t now);
	/* when this part needs the timer; 0: never */
	int64_t		(*next_timer) (const ZklSession *session);
	void		(*on_session_lost) (ZklSession *session);
	/* the owner closes the session, which may be connected */
	void		(*on_close) (ZklSession *session);
	/* frees what is no longer used, if session->garbage was set */
	void		(*on_sweep) (ZklSession *session);
	void		(*on_free) (ZklSession *session);
} ZklSessionPart;

/* The root and the znodes right below it (open_parents.c). */
#define ZKL_N_PARENTS 4

/* A session has at most some thousand nodes. */
#define ZKL_PATH_BUCKETS 1024

/* The types of what higher layers keep here are opaque to this layer. */
struct ZklSession
{
	pthread_mutex_t mutex;
	const ZklSessionPart *const *parts;
	ZklClient  *client;
	int			wait_fd;		/* epoll: wakeup_fd and what the client adds */
	int			wakeup_fd;
	bool		wake_due;		/* wakeup_fd must be made readable at the unlock */
	bool		woken;			/* it is readable, or about to be */
	bool		owner_reads;	/* in zkl_session_receive(): needs no wakeup */
	ZklSessionState state;
	bool		is_connected;	/* the client is; also in a final state */
	bool		is_gone;		/* the ensemble has ended the session, or never had it */
	bool		is_left;		/* closed by its owner while disconnected */
	bool		is_ending;		/* the client is closing */
	ZklConnectionInfo connection;
	int64_t		opened_ms;		/* when first connected */
	int64_t		disconnected_ms;	/* valid while suspended */
	int64_t		lease_from_ms;	/* submit time of the last confirmed quorum write */
	int64_t		timer_ms;		/* 0: none set */
	int64_t		retry_ms;		/* when to drive everything again; 0: no need */
	int64_t		retried_ms;		/* when a retry was last requested */
	int			retry_delay_ms; /* its delay */
	int64_t		next_keepalive_ms;	/* the next one after the first; else 0 */
	int64_t		keepalive_pause_ms;
	int64_t		hold_watch_ms;	/* when to watch held nodes; 0: all are watched */
	uint64_t	n_answers;		/* calls answered, not lost */
	uint64_t	guid_counter;
	bool		no_containers;	/* the server does not know them */
	bool		locks_exist;	/* the parent of all locks does */
	bool		semaphores_exist;	/* the parent of all semaphores does */

	bool		creator_acl;
	ZklCall    *acl_calls[ZKL_N_PARENTS];
	bool		acl_seen[ZKL_N_PARENTS];
	bool		has_open_parents;	/* others may change one of these parents */

	char	   *root;
	char	   *locks_path;
	char	   *semaphores_path;
	char	   *waits_path;
	ZklNodeNames node_names;
	int			max_nodes;
	int32_t		sequence_limit;
	void		(*on_loss_io) (void);
	void		(*on_revoke_io) (void);

	ZklCall    *calls;
	ZklCall    *last_call;
	ZklNode    *nodes;
	int			n_wanted;		/* nodes wanted, and the bytes of their paths */
	size_t		wanted_bytes;
	ZklNode    *by_path[ZKL_PATH_BUCKETS];	/* hash table by lock_path */
	ZklNode    *put_off;		/* nodes to be deleted together */
	int			n_put_off;
	ZklRequest *requests;
	ZklLock    *locks;
	int			n_locks;
	int			n_lost;			/* how many of them are lost */
	ZklWaits   *waits;			/* NULL until the first long wait */
	uint64_t	n_probes;		/* probes of its wait report so far */
	bool		is_unsearched;	/* see ZklRequestInfo */
	ZklScan    *scans;
	bool		garbage;		/* something can be freed */
	ZklNode    *garbage_nodes;
	ZklRequest *garbage_requests;
	int			leaving;		/* nesting depth of zkl__leave_begin() */
	ZklLastGrants *last_grants; /* of list_elision.c, or NULL */
	ZklEmptyParents *empty_parents; /* parents to be deleted, or NULL */

	ZklCall    *confirm_call;
	bool		confirm_wanted;
	ZklStatus	confirm_status;
	int64_t		confirmed_ms;	/* OK: submit time of the confirming multi */
	ZklLock   **confirm_locks;	/* the lock of each operation of the multi */
	int			n_confirm_locks;
};

/* session.c */
extern void zkl__session_lock(ZklSession *session);
extern void zkl__session_unlock(ZklSession *session);
extern void zkl__wake(ZklSession *session);
extern bool zkl__is_final(const ZklSession *session);
extern ZklStatus zkl__final_status(const ZklSession *session);
extern char *zkl__path(const char *parent, const char *child);
extern ZklSession *zkl__session_open(const ZklSessionConfig *config,
									 const ZklSessionPart *const *parts);

/* lease.c */
extern void zkl__lease_confirmed(ZklSession *session, int64_t submitted_ms);
extern bool zkl__lease_suffices(const ZklSession *session, int64_t submitted_ms);

/* calls.c */
extern void zkl__ignore_answer(ZklCall *call, const ZklResult *result);
extern ZklCall *zkl__call_new(ZklSession *session, ZklHandler handler,
							  void *subject, ZklUses *uses);
extern void zkl__call_keep(ZklCall *call, void *detail, ZklUses *uses);
extern ZklCall *zkl__call_sent(ZklCall *call, bool sent);
extern ZklCall *zkl__read_child(ZklCall *call, const char *parent, const char *child,
								bool watch);
extern ZklCall *zkl__delete_child(ZklCall *call, const char *parent, const char *child);
extern ZklCall *zkl__list_synced(ZklCall *call, const char *path, bool watch);

/* codes.c */
extern ZklStatus zkl__status_of(ZklResultCode code);
extern bool zkl__is_refusal(ZklResultCode code);

/* timers.c */
extern void zkl__retry_later(ZklSession *session);
extern void zkl__arm_timer(ZklSession *session, int64_t at_ms);

#endif							/* ZKL_SESSION_H */
