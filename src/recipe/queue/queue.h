/*-------------------------------------------------------------------------
 *
 * queue.h
 *		The znodes of a session in queues, each from create to delete.
 *
 * From the top to the bottom; a file calls only files below it:
 *
 *		node.c			one node: sends what its state requires, and takes the answers
 *		move.c			renames nodes: upgrade and downgrade
 *		ask.c			asks other sessions for nodes that they may keep
 *		deletes.c		gives nodes up and deletes them, alone or together
 *		node_state.c	the state that follows from what happens to a node: a pure function
 *		check_node.c	asserts what the states promise, in builds with ZKL_CHECKS
 *		node_list.c		all nodes of a session, and their news
 *		list_elision.c	proves that a node is first without a list of the queue
 *		empty_parents.c	deletes znodes of locks and semaphores out of use
 *		queue_order.c	which node is first, and whom the others wait for: queue_order.h, pure functions
 *		node_names.c	names of nodes: node_names.h, pure functions
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_QUEUE_H
#define ZKL_QUEUE_H

#include "queue_order.h"
#include "recipe/session/session.h"

/*
 * The states of a node, and what moves it from one to the next:
 *
 *		NEW            the create is sent            -> CREATING
 *		CREATING       created                       -> LISTING
 *		               ... and proven to be first    -> HELD
 *		               the create was refused        -> NEW
 *		               the outcome is unknown        -> UNKNOWN
 *		UNKNOWN        the GUID is in the queue      -> LISTING
 *		               ... is not in the queue       -> NEW
 *		LISTING        first                         -> HELD
 *		               has a predecessor             -> READING
 *		               upgrade, has a waiting writer -> MOVING_UP
 *		READING        read with a watch             -> WAITING
 *		               no predecessor any more       -> LISTING
 *		WAITING        the watch fired               -> LISTING
 *		               a question has no answer      -> LISTING
 *		MOVING_UP      moved, or the writer is gone  -> LISTING
 *		HELD           exclusive to shared mode      -> DOWNGRADING -> HELD
 *		any            released or given up          -> LEAVING -> GONE
 *
 * A state determines which operation the node needs next.  zkl__node_advance() sends
 * the operation if the session is connected and no answer is outstanding (state_call
 * is NULL).  So a lost connection loses an answer, but not the state: the node is
 * advanced again on the next connection.  There are two exceptions.  After a lost
 * create the znode may or may not exist, so CREATING becomes UNKNOWN.  Watches are
 * lost with the connection, so READING and WAITING become LISTING.
 *
 * A node that is no longer wanted becomes LEAVING at once, except where an answer
 * decides what to delete: CREATING and UNKNOWN first find out whether the znode
 * exists; MOVING_UP and DOWNGRADING wait for the answer to a multi in flight.
 *
 * What is set in each state (check_node.c asserts it).  "Wanted": the node belongs to exactly
 * one of a request, a lock (which has it), and the session (which keeps it); a node that is
 * not wanted belongs to nothing.
 *
 *						wanted	belongs to				new_name	watched		state_call
 *		NEW				yes		request					no			no			none
 *		CREATING		maybe	request					no			no			maybe: list
 *		UNKNOWN			maybe	request					no			no			maybe: look-up
 *		LISTING			yes		request					no			maybe		maybe: list
 *		READING			yes		request					no			yes			maybe: read
 *		WAITING			yes		request					no			yes			none
 *		MOVING_UP		maybe 	request					yes			yes			maybe: multi
 *		HELD			yes		request, lock, session	no			maybe		none
 *		DOWNGRADING		maybe	lock					yes			maybe		maybe: multi
 *		LEAVING			no		nothing					maybe		maybe		maybe: delete
 *		GONE			no		nothing					maybe		maybe		none
 *
 * Of the "maybe"s: without a call the operation of the state is sent with the next advance;
 * MOVING_UP and DOWNGRADING that are not wanted have one.
 */
typedef enum ZklNodeState
{
	NODE_NEW,					/* its owner has to create it */
	NODE_CREATING,				/* its owner has sent the create */
	NODE_UNKNOWN,				/* may exist: list the queue, look for the GUID */
	NODE_LISTING,				/* exists: list the queue to find its position, or prove it */
	NODE_MOVING_UP,				/* upgrade: rename to a waiting writer's number */
	NODE_READING,				/* not first: read the predecessor with a watch */
	NODE_WAITING,				/* not first: wait for the watch */
	NODE_HELD,					/* first: the request may still read its czxid, or wait for other nodes */
	NODE_DOWNGRADING,			/* held: rename to a reader of the same number */
	NODE_LEAVING,				/* delete it */
	NODE_GONE,					/* does not exist; freed with its last call */
	NODE_IMPOSSIBLE				/* no state: of what cannot happen (node_state.c) */
} ZklNodeState;

/* What happens to a node; the state follows from it (node_state.c). */
typedef enum ZklNodeEvent
{
	ON_CREATING,				/* the create was sent */
	ON_CREATED,					/* the znode exists: by the answer to the create, or by the look-up */
	ON_NOT_CREATED,				/* it does not exist: the same */
	ON_OUTCOME_OPEN,			/* the create has no answer, or one that leaves that open */
	ON_FIRST,					/* nothing is before it; or a permit, and there is room for it */
	ON_NOT_FIRST,				/* it has a predecessor */
	ON_WAITING_WRITER,			/* an upgrade has to move up to a waiting writer */
	ON_READ,					/* the predecessor was read, with a watch */
	ON_CHANGE,					/* the position has to be looked up again */
	ON_CONNECTED,				/* a new connection: watches and answers are lost */
	ON_REDUCED,					/* its lock is reduced to shared mode */
	ON_MOVED,					/* it has the new name */
	ON_NOT_MOVED,				/* it has the old name */
	ON_GIVEN_UP,
	ON_DELETED,
	ZKL_N_NODE_EVENTS
} ZklNodeEvent;

/* What is known about the watch on a held node (lock/hold_watch.c). */
typedef enum ZklHoldWatch
{
	HOLD_UNWATCHED,
	HOLD_WATCHED,				/* the node existed, and its removal will be reported */
	HOLD_UNREADABLE				/* the last read was answered with an error */
} ZklHoldWatch;

/*
 * What has happened to a node and concerns the request or the lock that it belongs to.  A
 * handler only marks the node.  Before the mutex is released, zkl__node_news() of
 * src/recipe/lock takes the news of each marked node (engine.c).
 */
typedef enum ZklNodeNews
{
	NODE_FOUND = 1,				/* UNKNOWN ended: it is known whether the node exists */
	NODE_PROGRESS = 2,			/* it is first, or waits, or the request is to look at it again */
	NODE_BLOCKED = 4,			/* node->answer has the data of the node that it waits for */
	NODE_FAILED = 8,			/* node->failure; LOCK_LOST: an upgrade, and its anchor is gone */
	NODE_REMOVED = 16,			/* the node, or its queue, does not exist any more */
	NODE_LOST = 32,				/* ... and it was held */
	NODE_MOVED = 64,			/* a move was answered; HELD: the node has its new name */
	NODE_CHANGED = 128,			/* its watch has fired: it has been changed or deleted */
	NODE_READ = 256				/* HELD: node->answer is what the node was read for */
} ZklNodeNews;

/* The part of a node that is private to this folder (internal.h). */
typedef struct ZklNodePrivate ZklNodePrivate;

/* One node of this session, from before its create until it is known to be deleted. */
struct ZklNode
{
	ZklNodePrivate *priv;
	ZklSession *session;
	ZklNode    *next;			/* in the list of zkl__nodes() */
	ZklUses		uses;
	char	   *lock_path;
	char		name[ZKL_CHILD_NAME_SIZE];	/* child name; before the create, its prefix */
	ZklNodeState state;
	int32_t		number;			/* of the name */
	int64_t		czxid;			/* 0: unknown */
	char	   *data;
	int			data_len;
	ZklMode		mode;
	uint64_t	guid_end;		/* second half of its GUID */
	ZklNodeNames node_names;	/* the scheme of its name */
	bool		non_blocking;	/* waits only for pending deletes of its server, and answers of keepers */
	bool		is_upgrade;		/* the session holds a reader node as well */
	bool		is_permit;		/* a permit: in no queue, its owner lists and grants */
	bool		created_parent; /* this session created the lock's znode, and deletes it later */
	bool		in_semaphore;	/* lock_path is one of the znodes of a semaphore */
	unsigned	news;			/* of ZklNodeNews; marked if not 0 */
	ZklStatus	failure;		/* NODE_FAILED */
	int			raw_code;
	const ZklResult *answer;	/* NODE_BLOCKED, NODE_READ; valid until the news are taken */
	ZklNode    *const *anchor;	/* an upgrade: the node that the session holds in this queue, or NULL */
	ZklRequest *request;		/* NULL if held or given up */
	int			index;			/* in request->nodes */
	bool		may_be_gone;	/* it must be checked before a grant (lock/advance.c) */
	ZklLock    *lock;			/* NULL unless held */
	int64_t		hold_watch_ms;	/* HELD: when the hold watch is due; 0: it is set, or being set */
	ZklHoldWatch hold_watch;	/* HELD: what is known about it */
	int32_t		revoked_version;	/* data version of the last revocation counted, or 0 */

	/* lock/kept.c; HELD, of nodes whose names have ZKL_KEEP_BIT */
	ZklKeepState keep;
	bool		is_kept;		/* neither a lock's nor a request's */
	bool		was_kept;		/* since the queue was last looked at */
	int64_t		kept_until_ms;
	int64_t		check_ms;		/* when to check the queue for waiters */
};

#define ZKL_PATH_BUCKETS 1024	/* a session has at most some thousand nodes */
#define ZKL_ASKED_TIMES 64
#define ZKL_LAST_GRANTS 4096

/* What this folder keeps about a session; each group belongs to one file. */
struct ZklQueues
{
	/* node_list.c */
	ZklNode    *first_node;		/* the youngest */
	int			n_wanted;		/* nodes wanted, and the bytes of their paths */
	size_t		wanted_bytes;
	uint32_t	guid_counter;
	ZklNode    *by_path[ZKL_PATH_BUCKETS];	/* hash table by lock_path */
	ZklNode    *first_marked;	/* nodes with news, oldest first */
	ZklNode    *last_marked;

	int64_t		asked_ms[ZKL_ASKED_TIMES];	/* by a hash of lock_path: the last request, or 0 */

	/* deletes.c */
	int			collect_depth;	/* calls of zkl__deletes_begin() without zkl__deletes_end() */
	int			n_collected;
	ZklNode    *collected;		/* nodes to be deleted together */
	int			n_pending;		/* pending deletes */

	/* list_elision.c */
	struct ZklLastGrant *last_grants[ZKL_LAST_GRANTS];	/* by a hash of lock_path, or NULL */

	/* empty_parents.c: first in, first out */
	struct ZklEmptyParent *first_empty;
	struct ZklEmptyParent *last_empty;
	int			n_empty;
	int			n_empty_deletes;	/* in flight */
};

/* node_list.c */
extern void zkl__nodes_free(ZklSession *session);
extern ZklNode *zkl__nodes(const ZklSession *session);
extern ZklNode *zkl__node_new(ZklSession *session, const char *lock_path, ZklMode mode,
							  ZklNodeNames node_names, const char *data, int data_len,
							  bool may_be_kept);
extern void zkl__node_mark(ZklNode *node, ZklNodeNews news);
extern void zkl__node_mark_answer(ZklNode *node, ZklNodeNews news, const ZklResult *answer);
extern void zkl__node_mark_failed(ZklNode *node, ZklStatus failure, int raw_code);
extern ZklNode *zkl__node_take_marked(ZklSession *session, unsigned *news);
extern ZklCall *zkl__node_call(ZklNode *node, ZklHandler handler);
extern ZklOp zkl__op_for_node(ZklOpKind kind, const ZklNode *node);
extern ZklOp zkl__op_to_create(ZklNode *node);
extern ZklNode *zkl__nodes_below(const ZklSession *session, const char *path, size_t length);
extern ZklNode *zkl__next_below(const ZklNode *node);
extern bool zkl__was_asked(const ZklSession *session, const char *lock_path);
extern void zkl__note_asked(const ZklNode *node);
extern void zkl__node_keep_never(ZklNode *node);

/* node_state.c */
extern ZklNodeState zkl__node_next(ZklNodeState state, ZklNodeEvent event, bool wanted, bool is_sent);
extern void zkl__node_take(ZklNode *node, ZklNodeEvent event);

/* check_node.c */
extern void zkl__check_node(const ZklNode *node);
extern void zkl__check_nodes(const ZklSession *session);

/* deletes.c */
extern void zkl__delete_later(ZklSession *session, const char *parent, const char *name);
extern void zkl__node_leave(ZklNode *node);
extern bool zkl__node_is_pending_delete(const ZklNode *node);
extern void zkl__deletes_begin(ZklSession *session);
extern void zkl__deletes_end(ZklSession *session);

/* list_elision.c */
extern void zkl__elision_note(const ZklNode *node);

/* ask.c */
extern void zkl__ask_for_kept(ZklSession *session, const char *lock_path,
							  const ZklResult *list, const char *contender);
extern bool zkl__node_awaits_answer(const ZklNode *node);

/* Returns the session whose pending delete a non-blocking attempt waits for, or 0. */
extern uint64_t zkl__node_awaits_release(const ZklNode *node);

/* It is not a pending delete: lists again, behind a sync. */
extern void zkl__node_look_again(ZklNode *node);

/* empty_parents.c */
extern void zkl__empty_parents_advance(ZklSession *session);
extern void zkl__empty_parents_close(ZklSession *session);
extern void zkl__node_created_parent(ZklNode *node);

/* move.c */
extern bool zkl__node_is_moving(const ZklNode *node);

/* node.c */
extern void zkl__nodes_list_again(ZklSession *session);
extern void zkl__nodes_advance(ZklSession *session);
extern void zkl__nodes_watched(ZklSession *session, const char *path);
extern void zkl__node_advance(ZklNode *node);
extern bool zkl__node_has_predecessor(const ZklNode *node);
extern bool zkl__node_predecessor(const ZklNode *node, ZklContender *predecessor);
extern void zkl__node_creating(ZklNode *node, bool is_new_queue);
extern void zkl__node_created(ZklNode *node, ZklResultCode code,
							  const char *path, int64_t czxid);
extern void zkl__node_czxid_known(ZklNode *node, int64_t czxid);
extern void zkl__node_downgrade(ZklNode *node);

#endif							/* ZKL_QUEUE_H */
