/*-------------------------------------------------------------------------
 *
 * lock.h
 *		Requests for locks, and the locks that a session holds.
 *
 * From the top to the bottom; a file calls only files below it:
 *
 *		check_request.c		asserts what states promise, in builds with ZKL_CHECKS
 *		request_api.c		requests for their owner: start, questions, taking the locks, end
 *		advance.c			one request: advancing, the news of its nodes, grant
 *		create.c			... creating its nodes and the znodes above them
 *		request.c			... its state, its nodes, its failure
 *		kept.c				nodes that stay after their lock was released
 *		hold_news.c			what is found about a node that is first, and what follows: one table
 *		lock.c				held locks: release, downgrade, confirmation, loss
 *		hold_watch.c		the watch that detects loss, revocation, and requests for kept nodes
 *
 * A handler of an answer changes its own subject and marks it, or its request.  Before the
 * mutex is released, engine.c has all that is marked advanced.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LOCK_H
#define ZKL_LOCK_H

#include "recipe/queue/queue.h"

typedef struct ZklPermit ZklPermit;

/* What this folder keeps about a session; each group belongs to one file. */
struct ZklLocks
{
	/* request_api.c */
	ZklRequest *first_request;	/* the youngest */
	ZklRequest *first_marked;	/* requests to be advanced, oldest first */
	ZklRequest *last_marked;

	/* lock.c */
	ZklLock    *first_lock;
	int			n_lost;			/* locks */
	ZklCall    *confirm_call;
	ZklStatus	confirm_status; /* PENDING: a confirmation is wanted */
	int64_t		confirmed_ms;	/* OK: submit time of the proof */

	/* hold_watch.c */
	int64_t		hold_watch_ms;	/* when to watch held nodes; 0: all are watched */

	/* kept.c */
	int64_t		kept_ms;		/* the next thing to do for a kept node; 0: nothing */
};

/*
 * A lock that the session holds, or that a pending request will hold.  The anchor is its
 * first node and exists until the lock is released; the anchor's czxid is the token.
 *
 *					in the list		token	anchor		base		writer_node
 *		requested	no				0		NULL		NULL		NULL
 *		held		yes				set		set			anchor		maybe
 *		lost		yes				set		maybe		NULL		maybe
 *
 * The nodes point back to the lock.  The anchor is HELD or DOWNGRADING; the writer node, that of
 * an upgrade, is HELD.  Of a lost lock, the nodes that are gone are NULL.
 */
struct ZklLock
{
	ZklSession *session;
	ZklLock    *prev;			/* in the list of lock.c, once granted */
	ZklLock    *next;
	bool		taken;			/* by the owner, from its request */
	bool		lost;
	int			revocations;
	int64_t		token;
	ZklNode    *anchor;
	ZklNode    *base;			/* the anchor, unless the lock is lost: upgrades build on it */
	ZklNode    *writer_node;	/* the writer node next to a reader anchor, or NULL */
};

/* A znode above the nodes of a permit, as it is created. */
typedef struct ZklParent
{
	const char *path;
	const char *data;
} ZklParent;

/* The index of the parent that is created only when nodes[0] exists. */
#define ZKL_PERMIT_NODE_PARENT 2

/*
 * A request for locks, or for a permit.
 *
 *		status		nodes							locks							calls
 *		PENDING		all; NEW to HELD				all; taken if upgraded			maybe
 *		OK			no more its own: NULL or not	those that are not taken		none that count
 *		failed		given up; maybe freed			NULL							none that count
 *
 * While it is PENDING, the nodes point back to it.  With create_call all nodes are CREATING; with
 * verify_call all are HELD.  A permit has one node, the mutex's, and, while it has the mutex, a
 * second one, permit_node, that is not HELD.  A request that reacquires what was kept has one node,
 * which is HELD.
 */
struct ZklRequest
{
	ZklSession *session;
	ZklRequest *next;			/* in the list of zkl__requests() */
	ZklRequest *next_marked;	/* in ZklLocks.first_marked */
	bool		is_marked;		/* to be advanced before the mutex is released */
	ZklPermit  *permit;			/* set if it is a request for a permit: freed with it */
	ZklUses		uses;

	/* what was asked for */
	int			n;
	bool		non_blocking;
	bool		may_be_kept;	/* its one node, after the lock is released */
	bool		reacquires;		/* the node was kept: is it still there? */
	ZklNodeNames node_names;	/* the scheme of the nodes' names */
	char	   *data;
	int			data_len;

	/* for the owner, see ZklRequestInfo */
	ZklStatus	status;
	int			raw_code;
	int			culprit;
	bool		was_blocked;
	int64_t		created_ms;		/* when the create was sent */
	char		blocker[sizeof(((ZklRequestInfo *) 0)->blocker)];

	uint64_t	progress;		/* that of nodes it had before it was restarted */
	ZklNode   **nodes;
	ZklNode    *permit_node;	/* of a permit, whose nodes[0] is the mutex's; NULL until that is held */
	bool		is_restarted;	/* of a permit: it begins again */
	ZklLock   **locks;			/* what the nodes become, until the owner takes it */
	ZklCall    *create_call;	/* the create or multi in flight */
	ZklCall    *czxid_call;		/* the read of a czxid in flight */
	ZklCall    *verify_call;	/* the multi that checks the nodes before the grant */

	/* the znodes above the nodes */
	const char *top_path;		/* parent of all locks, or of all semaphores */
	ZklParent	parents[3];		/* of a permit's nodes, each one above the next, or beside it */
	int			n_parents;		/* 0: each node of a lock has its own */
	bool		is_unknown;		/* the leader has answered to the last create that there is no such session */
	int			attempts;		/* consecutive creates that found no parent */
	ZklStatus	parents_status; /* why one could not be created; PENDING: try again */
	int			parents_raw_code;
};

/* request_api.c */
extern ZklRequest *zkl__lock_request(ZklSession *session, const ZklLockItem *items,
									 int n_items, bool non_blocking, const char *data,
									 int data_len);
extern ZklRequest *zkl__kept_request(ZklSession *session, const char *path, ZklMode mode,
									 bool non_blocking);
extern void zkl__request_end(ZklRequest *request);
extern ZklLock *zkl__request_take_lock(ZklRequest *request, int i);
extern void zkl__request_info(const ZklRequest *request, ZklRequestInfo *info);
extern void zkl__request_look_again(ZklRequest *request);
extern void zkl__requests_free(ZklSession *session);
extern ZklRequest *zkl__request_new(ZklSession *session, ZklPermit *permit, int n,
									bool non_blocking, const char *data, int data_len);

/* request.c */
extern ZklNode *zkl__request_node_new(ZklRequest *request, int index,
									  const char *lock_path, ZklMode mode, bool is_upgrade);
extern bool zkl__request_add_node(ZklRequest *request, int index,
								  const char *lock_path, ZklMode mode, ZklLock *held);
extern ZklRequest *zkl__requests(const ZklSession *session);
extern void zkl__request_mark(ZklRequest *request);
extern ZklRequest *zkl__request_take_marked(ZklSession *session);
extern bool zkl__request_is_queued(const ZklRequest *request);
extern bool zkl__request_is_first(const ZklRequest *request);
extern ZklCall *zkl__request_call(ZklRequest *request, ZklHandler handler);
extern bool zkl__request_answered(const ZklRequest *request, ZklCall **expected,
								  const ZklCall *call, const ZklResult *result);
extern void zkl__request_blocked(ZklRequest *request, int culprit,
								 const ZklResult *data);
extern void zkl__request_fail(ZklRequest *request, ZklStatus status,
							  int culprit, int raw_code);
extern void zkl__request_fail_code(ZklRequest *request, int culprit,
								   const ZklResult *result);

/* advance.c */
extern void zkl__node_news(ZklNode *node, unsigned news);
extern void zkl__requests_mark(ZklSession *session);
extern void zkl__request_advance(ZklRequest *request);
extern void zkl__request_restart(ZklRequest *request);
extern void zkl__request_read_czxid(ZklRequest *request, ZklNode *node);
extern void zkl__request_grant(ZklRequest *request);

/* create.c */
extern void zkl__request_create_nodes(ZklRequest *request);
extern void zkl__request_created(ZklRequest *request, const ZklResult *result);
extern void zkl__request_no_parent(ZklRequest *request);
extern void zkl__request_send_parents(ZklRequest *request);

/* check_request.c */
extern void zkl__check_request(const ZklRequest *request);
extern void zkl__check_locks(const ZklSession *session);

/* lock.c */
extern void zkl__lock_reduce(ZklLock *lock, ZklMode mode);
extern void zkl__confirm_advance(ZklSession *session);
extern void zkl__confirm_start(ZklSession *session, bool fresh);
extern ZklStatus zkl__confirm_status(ZklSession *session);
extern void zkl__locks_free(ZklSession *session);

/* hold_news.c */

/* Whose node is it? */
typedef enum ZklHeldBy
{
	ZKL_HELD_BY_NOBODY,			/* given up */
	ZKL_HELD_BY_LOCK,
	ZKL_HELD_BY_REQUEST,		/* that waits for other nodes, a proof, or a permit */
	ZKL_HELD_BY_REACQUIRING,	/* a request that takes again what was kept */
	ZKL_HELD_BY_SESSION,		/* which keeps it */
	ZKL_N_HELD_BY
} ZklHeldBy;

/* What has its watch found, or its owner's timer (kept.c)? */
typedef enum ZklFinding
{
	ZKL_HOLD_FOUND_NOTHING,		/* no answer; or it exists, and may not be kept */
	ZKL_HOLD_FOUND_OURS,		/* it may be kept */
	ZKL_HOLD_FOUND_ASKED,		/* ... and a contender asks for it */
	ZKL_HOLD_FOUND_OTHER,		/* ... and its data are the answer to that, or no word of ours */
	ZKL_HOLD_FOUND_REVOKE,		/* a request to release it */
	ZKL_HOLD_FOUND_REMOVED,
	ZKL_HOLD_FOUND_UNREADABLE,	/* ... it may be kept, and no question for it would arrive */
	ZKL_HOLD_FOUND_CHANGED,		/* it is not read yet */
	ZKL_HOLD_FOUND_WAITER,		/* it may be kept, and a contender waits that perhaps cannot ask */
	ZKL_HOLD_FOUND_TIME_UP,		/* it was kept for as long as its owner wanted */
	ZKL_N_FINDINGS
} ZklFinding;

/* What is to be done?  In this order. */
typedef enum ZklHeldResponse
{
	ZKL_NOTE = 1,				/* locks of this name are not kept for a while */
	ZKL_KEEP_NOT = 2,			/* it is deleted when it is released */
	ZKL_ANSWER = 4,				/* ... and the contender learns that it is in use */
	ZKL_REVOKED = 8,			/* the owner of the lock learns of the request */
	ZKL_LEAVE = 16,
	ZKL_QUEUE_AGAIN = 32,
	ZKL_LOSE = 64,
	ZKL_GO_ON = 128,			/* the request looks at it again */
	ZKL_WATCH = 256				/* it is read again */
} ZklHeldResponse;

extern unsigned zkl__held_response(ZklHeldBy holder, ZklFinding found);
extern void zkl__hold_found(ZklNode *node, ZklFinding found);
extern void zkl__hold_news(ZklNode *node, unsigned news);

/* kept.c */
extern ZklNode *zkl__kept_find(const ZklSession *session, const char *lock_path);
extern void zkl__kept_leave(ZklSession *session, const char *lock_path);
extern bool zkl__kept_make_room(ZklSession *session, int n_nodes, size_t path_bytes, size_t data_bytes);
extern void zkl__kept_leave_all(ZklSession *session);
extern void zkl__lock_keep(ZklLock *lock, int keep_ms);
extern void zkl__kept_granted(ZklNode *node);
extern void zkl__kept_due(ZklSession *session);

/* hold_watch.c */
extern void zkl__hold_watch_restore(ZklNode *node, int32_t version);
extern void zkl__hold_watch_node(ZklNode *node);
extern void zkl__hold_watch_again(ZklNode *node);
extern void zkl__hold_watch_revoked(ZklNode *node, int32_t version);
extern void zkl__hold_watches_lost(ZklSession *session);
extern void zkl__hold_watches_due(ZklSession *session);
extern void zkl__hold_watch_later(ZklNode *node);
extern void zkl__hold_watch_now(ZklSession *session);

#endif							/* ZKL_LOCK_H */
