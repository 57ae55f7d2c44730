/*-------------------------------------------------------------------------
 *
 * session.h
 *		A ZooKeeper session and its calls in flight.
 *
 *		session.c		the session, its connection and its timer: retries, proofs, deadlines;
 *						ACLs of the znodes above the locks
 *		session_state.c	its mutex, state, timer and retries, for every layer; waking its owner
 *		calls.c			calls in flight; keepalive reads; the meaning of result codes
 *		batch.c			operations of the owner, for batch.h
 *		lease.c			how long the ensemble certainly keeps the session; proofs
 *
 * calls.c, lease.c and session_state.c call each other, because answers prove that the
 * ensemble keeps the session, a proof is a call, and a session without proof ends.
 *
 * Threads.  A session advances on its owner's thread and on the I/O thread of its client
 * (zookeeper/io_thread.c).  One mutex for each session guards everything that
 * this layer and the higher ones keep about it; no thread waits while it holds the mutex.
 *
 *		function						thread			mutex held when called
 *		zkl_... (recipe.h)				owner			none; takes the session's
 *		ZklClientEvents: answer_io,
 *		watch_io, event_io				any [1]			library's; takes the session's
 *		... timer_io					I/O				none; takes the session's
 *		... closed_io					I/O				none; frees the session
 *		zkl__... [2], ZklHandler,
 *		ZklUses, zkl__on_... [3]		any				session's
 *		on_loss_io, on_revoke_io		any				session's
 *
 * [1] The thread that drives the library: I/O, the owner in zkl_client_exchange(), any in
 * zkl_client_flush().  [2] Except where a comment says otherwise.  [3] zkl__on_free() is
 * called without the mutex, when no other thread has the session any more.
 *
 * The suffix _io marks callbacks of the client library, the client and the I/O thread,
 * and the functions of the log and the backend that they reach.  It means "may run on
 * any thread": the function must not call PostgreSQL.  Functions of src/recipe without
 * the suffix may run on any thread, too, as the table says.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSION_H
#define ZKL_SESSION_H

#include "recipe/recipe.h"
#include "recipe/zookeeper/client.h"

typedef struct ZklNode ZklNode;

typedef void (*ZklHandler) (ZklCall *call, const ZklResult *result);

/*
 * Part of a subject of calls.  The subject is freed when the mutex is released after
 * zkl__uses_end() and after the last of the calls is answered.
 */
typedef struct ZklUses
{
	void	   *subject;
	void		(*free_subject) (void *subject);
	int			calls;			/* in flight */
	unsigned	progress;		/* the most answers that it got on one connection */
	unsigned	n_answers;		/* ... and on the connection with this number */
	unsigned	connection;
	bool		ended;
	struct ZklUses *next;		/* to be freed */
} ZklUses;

/* How old a list may be.  A leader that is cut off answers a sync, but proves no session. */
typedef enum ZklListAge
{
	ZKL_LIST_ANY,
	ZKL_LIST_SYNCED,
	ZKL_LIST_PROVEN
} ZklListAge;

/* An operation in flight. */
struct ZklCall
{
	ZklSession *session;
	ZklCall    *prev;			/* in the session's list, oldest first */
	ZklCall    *next;
	int64_t		submitted_ms;
	bool		is_keepalive;	/* a keepalive read: no code waits for it */
	bool		confirms;		/* a create or a multi, a quorum write: OK renews the lease */
	bool		is_backed;		/* ... if the leader had answered shortly before this was sent */
	int64_t		settled_ms;		/* ... submit time of the newest settled write when this was sent, or 0 */
	ZklListAge	awaits;			/* of a list: the sync or proof that has not succeeded yet */
	ZklHandler	handler;
	void	   *subject;		/* for the handler, or NULL */
	ZklUses    *uses;			/* the subject's, or NULL; counts this call */
	void	   *detail;			/* a second subject */
	ZklUses    *detail_uses;
};

/*
 * The events of a session, implemented by assemble.c, which calls the layers above in an
 * order: lower layers first.  All except zkl__on_free() are called with the session's
 * mutex held.
 */

/* a new connection: answers and watches of the earlier one may be lost */
extern void zkl__on_connected(ZklSession *session);
extern void zkl__on_watch(ZklSession *session, const char *path);

/* sends what must be sent and was not sent, or not answered */
extern void zkl__on_advance(ZklSession *session);

/* the timer has fired, for any file; each sets it again if needed */
extern void zkl__on_timer(ZklSession *session);
extern void zkl__on_session_lost(ZklSession *session);

/* the owner closes the session, which may be connected */
extern void zkl__on_close(ZklSession *session);

/* frees what the parts refer to; the parts are freed with the session */
extern void zkl__on_free(ZklSession *session);

/* A session has at most some thousand nodes. */
#define ZKL_PATH_BUCKETS 1024

#define ZKL_ASKED_TIMES 64
#define ZKL_LAST_GRANTS 4096

/* What the higher layers keep about a session; each group belongs to one file. */
typedef struct ZklParts
{
	/* queue/nodes.c */
	ZklNode    *first_node;		/* the youngest */
	int			n_wanted;		/* nodes wanted, and the bytes of their paths */
	size_t		wanted_bytes;
	uint32_t	guid_counter;
	ZklNode    *by_path[ZKL_PATH_BUCKETS];	/* hash table by lock_path */

	int64_t		asked_ms[ZKL_ASKED_TIMES];	/* by a hash of lock_path: the last request, or 0 */

	int			leave_depth;	/* calls of zkl__leave_begin() without zkl__leave_end() */
	int			n_put_off;
	ZklNode    *put_off;		/* nodes to be deleted together */

	/* queue/list_elision.c */
	struct ZklLastGrant *last_grants[ZKL_LAST_GRANTS];	/* by a hash of lock_path, or NULL */

	/* queue/empty_parents.c: first in, first out */
	struct ZklEmptyParent *first_empty;
	struct ZklEmptyParent *last_empty;
	int			n_empty;
	int			n_empty_deletes;	/* in flight */

	/* lock/requests.c */
	ZklRequest *first_request;	/* the youngest */

	/* lock/lock.c */
	ZklLock    *first_lock;
	int			n_lost;			/* locks */
	ZklCall    *confirm_call;
	ZklStatus	confirm_status; /* PENDING: a confirmation is wanted */
	int64_t		confirmed_ms;	/* OK: submit time of the proof */

	/* lock/hold_watch.c */
	int64_t		hold_watch_ms;	/* when to watch held nodes; 0: all are watched */

	/* lock/kept.c */
	int64_t		kept_ms;		/* the next thing to do for a kept node; 0: nothing */
} ZklParts;

/* The options of a session, and the paths of the znodes right below its root. */
typedef struct ZklConfig
{
	char	   *root;
	char	   *locks_path;
	char	   *semaphores_path;
	char	   *waiting_path;	/* wait reports */
	char	   *bells_path;
	ZklNodeNames node_names;
	int			max_nodes;
	int32_t		sequence_limit;
	uint32_t	server_tag;
	void		(*on_loss_io) (void);
	void		(*on_revoke_io) (void);
} ZklConfig;

/* session_state.c */
extern ZklParts *zkl__parts(const ZklSession *session);
extern const ZklConfig *zkl__config(const ZklSession *session);
extern char *zkl__path(const char *parent, const char *child);
extern bool zkl__is_connected(const ZklSession *session);
extern bool zkl__is_final(const ZklSession *session);
extern ZklStatus zkl__final_status(const ZklSession *session);
extern int64_t zkl__session_id(const ZklSession *session);
extern int	zkl__session_timeout_ms(const ZklSession *session);
extern void zkl__arm_timer(ZklSession *session, int64_t at_ms);

/* The time of something that is due, 0: nothing.  Sets it and the timer, unless it is earlier. */
extern void zkl__set_due(ZklSession *session, int64_t *due_ms, int64_t at_ms);

/* Returns whether the time has come, and sets it to 0; otherwise sets the timer again. */
extern bool zkl__take_due(ZklSession *session, int64_t *due_ms, int64_t now);
extern void zkl__retry_later(ZklSession *session);
extern void zkl__count_holds(ZklSession *session, int change);
extern void zkl__session_lock(ZklSession *session);
extern void zkl__session_unlock(ZklSession *session);
extern void zkl__wake(ZklSession *session);

/* lease.c */
extern void zkl__lease_confirmed(const ZklCall *call);
extern bool zkl__lease_suffices(const ZklSession *session, int64_t submitted_ms);
extern int64_t zkl__lease_settled_ms(const ZklSession *session);
extern bool zkl__lease_is_backed(const ZklSession *session);
extern void zkl__lease_note_holds(ZklSession *session);
extern void zkl__lease_prepare(ZklSession *session);
extern bool zkl__lease_allows_grant(ZklSession *session);
extern bool zkl__lease_is_proving(const ZklSession *session);
extern void zkl__lease_await(ZklCall *call);
extern bool zkl__lease_is_fresh(const ZklSession *session);
extern void zkl__lease_check(ZklSession *session);
extern ZklCall *zkl__lease_prove(ZklSession *session, ZklHandler handler);
extern bool zkl__lease_proved(const ZklCall *call, const ZklResult *result);

/* calls.c */
extern void zkl__uses_end(ZklSession *session, ZklUses *uses);
extern void zkl__ignore_answer(ZklCall *call, const ZklResult *result);
extern ZklCall *zkl__call_new(ZklSession *session, ZklHandler handler,
							  void *subject, ZklUses *uses);
extern void zkl__call_keep(ZklCall *call, void *detail, ZklUses *uses);
extern ZklCall *zkl__send_all(ZklCall *call, ZklRequestForm form, const ZklOp *ops, int n);
extern ZklCall *zkl__send(ZklCall *call, const ZklOp *op);
extern ZklCall *zkl__read_child(ZklCall *call, const char *parent, const char *child,
								bool watch);
extern ZklCall *zkl__get_children(ZklCall *call, const char *path, ZklListAge age, bool watch);
extern ZklStatus zkl__status_of(ZklResultCode code);
extern bool zkl__is_refusal(ZklResultCode code);
extern int	zkl__failed_op(const ZklResult *result);

#endif							/* ZKL_SESSION_H */
