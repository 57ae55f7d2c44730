/*-------------------------------------------------------------------------
 *
 * session.h
 *		A ZooKeeper session and its calls in flight.
 *
 *		session.c		the session, its connection and its timer; ACLs of the znodes above the locks
 *		batch.c			operations of the owner, for batch.h
 *		check_session.c	asserts what states promise, in builds with ZKL_CHECKS
 *		proofs.c		sends proofs that the ensemble keeps the session
 *		calls.c			calls in flight; keepalive reads; the meaning of result codes
 *		lease.c			the deadline of what is held; the end of the session
 *		lease_clock.c	how long the ensemble certainly keeps the session: pure functions of times
 *		session_state.c	its mutex, state, timer and retries, for every layer; waking its owner
 *
 * A file calls only files below it in this list.
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
 *		ZklUses							any				session's
 *		on_loss_io, on_revoke_io		any				session's
 *
 * [1] The thread that drives the library: I/O, the owner in zkl_client_exchange(), any in
 * zkl_client_flush().  [2] Except where a comment says otherwise.
 *
 * The suffix _io marks callbacks of the client library, the client and the I/O thread,
 * and the functions of the log and the backend that they reach: in src/backend, where all
 * other functions run on the backend's thread, it means that the function may run on any
 * thread, and must not call PostgreSQL.  In src/recipe nothing calls PostgreSQL; on which thread
 * its functions run, with and without the suffix, is in the table.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSION_H
#define ZKL_SESSION_H

#include "recipe/recipe.h"
#include "recipe/zookeeper/client.h"

/*
 * States say what must be set in them, where they are declared; functions zkl__check_...() assert
 * that before and after each object is advanced (engine.c).  Only in unit tests, fuzzers, and for
 * a PostgreSQL with assertions.
 */
#ifdef ZKL_CHECKS
#include <assert.h>
#define ZKL_ASSERT(condition) assert(condition)
#else
#define ZKL_ASSERT(condition) ((void) 0)
#endif

/* Objects of one kind that are checked after each event. */
#define ZKL_N_CHECKED 64

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

/* What a list must be fresh by.  A leader that is cut off answers a sync, but proves no session. */
typedef enum ZklFreshness
{
	ZKL_LIST_ANY,
	ZKL_LIST_SYNCED,
	ZKL_LIST_PROVEN
} ZklFreshness;

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
	ZklFreshness needs_freshness;	/* of a list: the sync or proof that has not succeeded yet */
	ZklHandler	handler;
	void	   *subject;		/* for the handler, or NULL */
	ZklUses    *uses;			/* the subject's, or NULL; counts this call */
	void	   *detail;			/* a second subject */
	ZklUses    *detail_uses;
};

/* What the higher layers keep about a session: queue/queue.h, lock/lock.h. */
typedef struct ZklQueues ZklQueues;
typedef struct ZklLocks ZklLocks;

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
	uint32_t   *pending_deletes;	/* NULL when the session closes */
	void		(*on_loss_io) (void);
	void		(*on_revoke_io) (void);
} ZklConfig;

/* session.c, for engine.c; zkl__session_free() is called without the mutex */
extern ZklSession *zkl__session_new(const ZklSessionConfig *config, size_t queues_size,
									size_t locks_size);
extern bool zkl__session_open(ZklSession *session, const ZklSessionConfig *config,
							  const ZklClientEvents *events);
extern bool zkl__session_event(ZklSession *session, ZklConnectionEvent event,
							   const ZklConnectionInfo *info);
extern bool zkl__session_rings(ZklSession *session, int64_t now);
extern void zkl__session_arm(ZklSession *session);
extern void zkl__session_unlock_and_end(ZklSession *session);
extern bool zkl__session_leave(ZklSession *session);
extern bool zkl__session_close(ZklSession *session, int timeout_ms);
extern void zkl__session_free(ZklSession *session);
extern void zkl__acls_read(ZklSession *session);

/* session_state.c */
extern ZklQueues *zkl__queues(const ZklSession *session);
extern ZklLocks *zkl__locks(const ZklSession *session);
extern const ZklConfig *zkl__config(const ZklSession *session);
extern char *zkl__put_path(char **room, const char *parent, const char *child);
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

/* Each cause of retries has its own delay: one that lasts does not slow down the other. */
typedef enum ZklRetryCause
{
	ZKL_RETRY_UNANSWERED,		/* a call could not be sent, or has no answer on a connection that stays */
	ZKL_RETRY_REFUSED,			/* the answer was an error: an ACL may refuse the same for ever */
	ZKL_N_RETRY_CAUSES
} ZklRetryCause;

extern void zkl__retry_later(ZklSession *session, ZklRetryCause cause);
extern bool zkl__take_retry(ZklSession *session, int64_t now);
extern void zkl__count_relied(ZklSession *session, int change);
extern void zkl__session_lock(ZklSession *session);
extern void zkl__session_unlock(ZklSession *session);
extern void zkl__wake_at_unlock(ZklSession *session);

/* lease.c */
extern bool zkl__lease_suffices(const ZklSession *session, int64_t submitted_ms);
extern bool zkl__lease_is_fresh(const ZklSession *session);
extern void zkl__lease_check(ZklSession *session);
extern void zkl__count_holds(ZklSession *session, int change);

/* proofs.c */
extern ZklCall *zkl__prove(ZklSession *session, ZklHandler handler);
extern bool zkl__proved(const ZklCall *call, const ZklResult *result);
extern void zkl__prove_if_due(ZklSession *session);
extern bool zkl__prove_for_grant(ZklSession *session);
extern void zkl__prove_by_write(ZklCall *call);
extern bool zkl__is_proving(const ZklSession *session);
extern void zkl__proofs_run(ZklSession *session, int64_t now);
extern ZklCall *zkl__get_children(ZklCall *call, const char *path, ZklFreshness freshness, bool watch);

/* calls.c */
extern bool zkl__call_answered(ZklCall *call, const ZklResult *result);
extern void zkl__calls_free(ZklSession *session);
extern void zkl__keepalive(ZklSession *session, int64_t now);
extern void zkl__uses_end(ZklSession *session, ZklUses *uses);
extern void zkl__ignore_answer(ZklCall *call, const ZklResult *result);
extern ZklCall *zkl__call_new(ZklSession *session, ZklHandler handler,
							  void *subject, ZklUses *uses);
extern void zkl__call_keep(ZklCall *call, void *detail, ZklUses *uses);
extern ZklCall *zkl__send_all(ZklCall *call, ZklRequestForm form, const ZklOp *ops, int n);
extern ZklCall *zkl__send(ZklCall *call, const ZklOp *op);
extern ZklCall *zkl__read_child(ZklCall *call, const char *parent, const char *child,
								bool watch);
extern ZklStatus zkl__status_of(ZklResultCode code);
extern bool zkl__is_refusal(ZklResultCode code);
extern int	zkl__failed_op(const ZklResult *result);

/* check_session.c */
extern void zkl__check_session(const ZklSession *session);

/* batch.c */
extern void zkl__batches_connected(ZklSession *session);
extern void zkl__batches_retry(ZklSession *session);
extern void zkl__batches_watched(ZklSession *session, const char *path);

#endif							/* ZKL_SESSION_H */
