/*-------------------------------------------------------------------------
 *
 * recipe.h
 *		Interface of the recipe layer: distributed locks over ZooKeeper.
 *
 * This header and batch.h are the only ones of the recipe layer that the PostgreSQL side
 * includes.
 * The layer is independent of PostgreSQL: it never throws, exits or prints.  It
 * copies all arguments.  Times named ..._ms are milliseconds.
 *
 * Threads: all functions for a session are called by one thread, its owner.  The
 * recipes advance on this thread while it waits, otherwise on the session's I/O
 * thread.  When the descriptor of zkl_session_fd() is readable, a state may have
 * changed: the owner calls zkl_session_receive() and reads the states it needs.
 *
 * Blocking: zkl_session_close() waits for at most the given time, and
 * zkl_session_receive() for some milliseconds.  No other function waits.
 *
 * A ZklSession is one ZooKeeper session.  When that ends (expired, declared lost,
 * credentials refused), the object keeps its final state and all its locks are lost;
 * the owner closes it and opens another.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_RECIPE_H
#define ZKL_RECIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ZklSession ZklSession;
typedef struct ZklRequest ZklRequest;
typedef struct ZklLock ZklLock;
typedef struct ZklBatch ZklBatch;

typedef enum ZklStatus
{
	ZKL_OK = 0,
	ZKL_PENDING,				/* not decided yet */
	ZKL_BUSY,					/* non-blocking attempt: others hold it or wait for it */
	ZKL_DEADLOCK,				/* another holder of the shared lock upgrades it, too */
	ZKL_SESSION_LOST,			/* the session has ended */
	ZKL_ABANDONED,				/* the owner ended the request */
	ZKL_LOCK_LOST,				/* the lock to be upgraded is no longer held */
	ZKL_AUTH_FAILED,			/* the ensemble refused the credentials */
	ZKL_NO_AUTH,				/* an ACL forbids the operation */
	ZKL_NO_CHROOT,				/* the chroot of the connect string does not exist */
	ZKL_LOCAL_SESSION,			/* the servers allow this session no ephemeral nodes */
	ZKL_TOO_MANY,				/* limit of a session's nodes or their bytes, or of a batch */
	ZKL_SEQUENCE_USED_UP,		/* until the lock's queue has been empty */
	ZKL_NOT_SUPPORTED,			/* these node names have no shared mode */
	ZKL_OTHER_CAPACITY,			/* the semaphore has capacity ZklRequestInfo.capacity */
	ZKL_CONNECTION_LOST,		/* batch: answers were lost, mostly with the connection */
	ZKL_NO_MEMORY,
	ZKL_SERVER_ERROR			/* anything else; see ZklRequestInfo.raw_code */
} ZklStatus;


/*
 * Names
 */

typedef enum ZklMode
{
	ZKL_MODE_NONE = 0,
	ZKL_MODE_SHARED,
	ZKL_MODE_EXCLUSIVE
} ZklMode;

/* The program whose node names a session uses; nodes with any of these names contend. */
typedef enum ZklNodeNames
{
	ZKL_NODE_NAMES_CURATOR,		/* InterProcessReadWriteLock */
	ZKL_NODE_NAMES_CURATOR_MUTEX,	/* InterProcessMutex; no shared mode */
	ZKL_NODE_NAMES_KAZOO		/* Lock, WriteLock, ReadLock */
} ZklNodeNames;

/* The program that created a node, as far as the node's name and owner show. */
typedef enum ZklMaker
{
	ZKL_MAKER_OTHER,
	ZKL_MAKER_ZKLOCK,
	ZKL_MAKER_CURATOR,
	ZKL_MAKER_KAZOO
} ZklMaker;

/* Size of the longest encoded form of a name of "bytes" bytes, with the NUL. */
#define ZKL_ENCODED_SIZE(bytes) ((bytes) * 3 + 1)

/*
 * Percent-encodes a name so that it is one component of a znode path: bytes
 * outside A-Za-z0-9_.:@~+=- become %XX, and the names "." and ".." are
 * encoded whole.  "out" has room for ZKL_ENCODED_SIZE(length).  Any thread.
 */
extern size_t zkl_encode_name(const char *name, size_t length, char *out);


/*
 * Sessions
 */

typedef enum ZklSessionState
{
	ZKL_SESSION_CONNECTING,		/* not connected yet */
	ZKL_SESSION_CONNECTED,
	ZKL_SESSION_SUSPENDED,		/* the connection is lost; the session may live */
	ZKL_SESSION_EXPIRED,		/* final: expired, closed, or declared lost by a timer */
	ZKL_SESSION_AUTH_FAILED		/* final */
} ZklSessionState;

/* What a session can be resumed with, by anybody who has it. */
typedef struct ZklSessionKey
{
	int64_t		id;				/* 0: none */
	char		password[16];
} ZklSessionKey;

typedef struct ZklSessionConfig
{
	const char *connect_string; /* host:port,...[/chroot] */
	const char *root;			/* absolute path without a trailing slash */
	int			session_timeout_ms;
	const char *digest;			/* "user:password", or NULL */
	const char *tls;			/* "CA file,certificate file,key file,passphrase", or NULL */
	bool		creator_acl;
	ZklNodeNames node_names;
	int			max_nodes;
	int32_t		sequence_limit; /* highest number to use; 0: ZKL_SEQUENCE_LIMIT */
	ZklSessionKey resumed;		/* the session to resume, to close it; or none */
	uint32_t	server_tag;		/* of all sessions that share local locks, at most ZKL_MAX_SERVER_TAG; in the names of
								 * nodes */

	/*
	 * Set on any thread, before the close begins, to the number of nodes that the session has
	 * released and that may still exist.  May be NULL.
	 */
	uint32_t   *pending_deletes;

	/*
	 * Called with the session's mutex held, on any of its threads, when a lock
	 * that the owner has taken is lost.  Must be async-signal-safe and not call the layer.
	 * May be NULL.
	 */
	void		(*on_loss_io) (void);

	/* The same when the release of a lock is requested. */
	void		(*on_revoke_io) (void);
} ZklSessionConfig;

/* The highest bit is clear, unlike in the names of other programs' nodes. */
#define ZKL_MAX_SERVER_TAG UINT32_C(0x7fffffff)

/* Limit of max_nodes: the paths, of 70 bytes at least, must fit into one packet. */
#define ZKL_MAX_NODES 7143

/* Leaves room below 2^31 for requests in flight and upgrades, which may exceed it. */
#define ZKL_SEQUENCE_LIMIT 2147000000

typedef struct ZklSessionInfo
{
	ZklSessionState state;
	bool		is_unproven;	/* EXPIRED: not confirmed in time; the ensemble may still have it */
	ZklSessionKey key;			/* none before the first connection */
	int			session_timeout_ms; /* as negotiated; 0 before */
	char		server[64];		/* address:port of the last connection, or empty */
	int64_t		connected_ms;	/* since the session began */
	int64_t		lease_ms;		/* remaining lease; 0 when over */
	int			n_locks;		/* held */
	uint64_t	n_answers;		/* received so far */
	bool		has_open_parents;	/* others may change the root or a child; known with creator_acl, after a grant */
} ZklSessionInfo;

/* Starts a session and returns at once; NULL when memory, descriptors or threads are exhausted. */
extern ZklSession *zkl_session_open(const ZklSessionConfig *config);

/*
 * Ends the session at the ensemble, which removes its nodes, and frees it with all
 * its requests and locks.  Blocks for at most timeout_ms, and not at all while the
 * connection is lost; the I/O thread then does the rest and frees the session.
 */
extern void zkl_session_close(ZklSession *session, int timeout_ms);

/*
 * Returns the number of sessions that have descriptors, also of closing ones; and whether a
 * thread of any session, or of a lookup of a name, still runs.
 */
extern int	zkl_sessions_open(void);
extern bool zkl_threads_are_running(void);

/* Returns the descriptor that is readable when something changed; valid until close. */
extern int	zkl_session_fd(const ZklSession *session);

/*
 * The owner calls this before and after it polls the descriptor.  Meanwhile, and for some
 * milliseconds afterwards, the I/O thread leaves it time to read.  An owner that an error has
 * interrupted may leave out the second call: then the I/O thread just reads a little later.
 */
extern void zkl_session_waits(ZklSession *session, bool waits);

/* Reads what the server has sent and resets the descriptor; call before reading states. */
extern void zkl_session_receive(ZklSession *session);

extern ZklSessionState zkl_session_state(ZklSession *session);
extern ZklSessionInfo zkl_session_info(ZklSession *session);

/* Returns whether the lease lasts; for a commit that relies on it without asking: half of it. */
extern bool zkl_session_lease_lasts(ZklSession *session, bool for_commit);

/* Returns whether the session's node names have this mode.  Any thread. */
extern bool zkl_session_has_mode(const ZklSession *session, ZklMode mode);

/* Returns whether, as far as is known, the session lives and no lock of it is lost. */
extern bool zkl_session_is_intact(ZklSession *session);

/* Returns when (zkl_now_ms()) all locks are lost; 0: none; negative: lost.  Any signal handler. */
extern int64_t zkl_session_deadline_io(ZklSession *session);

/* Returns the time of the lease's clock, which counts suspended time.  Any thread. */
extern int64_t zkl_now_ms(void);

/*
 * Asks the ensemble, through its quorum, whether the session lives and all nodes of
 * held locks exist, and returns at once; also works without locks.  The caller polls
 * zkl_session_confirmed().  If such a request is in flight, its answer is used,
 * unless "fresh" is set: then only a request sent after this call counts.
 */
extern void zkl_session_confirm(ZklSession *session, bool fresh);

/*
 * Returns PENDING, OK, SESSION_LOST, AUTH_FAILED, or why the request failed; after OK the
 * caller checks zkl_lock_is_lost().  OK means that at least half of the
 * confirmed lease is left; if the answer came too late for that, the ensemble is asked
 * again and the result is PENDING.
 */
extern ZklStatus zkl_session_confirmed(ZklSession *session);


/*
 * Locks
 */

typedef struct ZklLockItem
{
	const char *name;			/* encoded; below <root>/locks/ */
	ZklMode		mode;
	ZklLock    *held;			/* this session's lock of that name, or NULL */
	bool		may_be_kept;	/* of an only item: later, see zkl_lock_keep() */
} ZklLockItem;

/*
 * Queues for all items at once, with one multi if there are several.  The names are
 * distinct, and no item asks for a mode that "held" covers.  "data" describes the
 * holder to readers of the nodes.  "non_blocking" is a non-blocking attempt: it ends with
 * BUSY if others are first.  But the caller has the local locks, so a node before whose
 * name has the server_tag is mostly a pending delete: the attempt waits for it, released_by is
 * set, and the caller calls zkl_request_look_again() if that session has nothing to delete.
 * The caller ends the request if that takes too long; as it does if has_asked stays set.  What
 * the session keeps of these names is given up.  Returns NULL only when memory is exhausted;
 * zkl_request_status() reports all other errors.  If the session is not connected, the
 * request is sent after connecting.
 */
extern ZklRequest *zkl_lock_request(ZklSession *session,
									const ZklLockItem *items, int n_items,
									bool non_blocking,
									const char *data, int data_len);

/*
 * Queues for one permit of a semaphore of this capacity; "name" is encoded, below
 * <root>/semaphores/.  A session may have any number of permits, each with its own
 * request.  The permit is a ZklLock with a token, to be reduced to NONE.  The rest
 * is as for zkl_lock_request(); with "non_blocking" the request still waits, briefly, for
 * sessions that are just acquiring or releasing a permit.
 */
extern ZklRequest *zkl_permit_request(ZklSession *session, const char *name,
									  int capacity, bool non_blocking,
									  const char *data, int data_len);

/* Returns PENDING, OK once every item is granted, or why it failed and holds nothing. */
extern ZklStatus zkl_request_status(ZklRequest *request);

typedef struct ZklRequestInfo
{
	bool		blocked;		/* waits for another session now, with a watch: no answer is due */
	bool		has_asked;		/* a non-blocking attempt waits for the answer to a question */
	bool		was_blocked;	/* has waited at any time */
	uint64_t	progress;		/* grows with each answer that brings the request further */
	int			raw_code;		/* the client library's code for SERVER_ERROR */
	int			culprit;		/* index of the item that failed or waits, or -1 */
	uint64_t	released_by;	/* a non-blocking attempt waits for the delete by this session; or 0 */
	bool		is_permit;		/* the request is for a permit, not for locks */
	int			capacity;		/* the semaphore's capacity, for OTHER_CAPACITY */
	char		blocker[512];	/* the blocking node's data: any bytes, maybe cut, and a NUL */
} ZklRequestInfo;

extern void zkl_request_info(ZklRequest *request, ZklRequestInfo *info);

/*
 * For a non-blocking attempt with released_by: what it waits for is no pending delete.  Looks a
 * second time, behind a sync, and treats these nodes as those of other servers.
 */
extern void zkl_request_look_again(ZklRequest *request);

/* Takes the lock granted for item i of a request that is OK; to be called once. */
extern ZklLock *zkl_request_lock(ZklRequest *request, int i);

/*
 * Ends and frees the request, in any state.  Releases what was not granted, or granted
 * and not taken: the layer removes its nodes by itself, even if it is unknown whether
 * they were created.
 */
extern void zkl_request_end(ZklRequest *request);

/* The data with which a program requests the release of a lock, and a superuser's data begin. */
#define ZKL_REVOKE_MESSAGE "__REVOKE__"
#define ZKL_SUPERUSER_DATA "zklock superuser "

/* Returns the first node's czxid, which grows with every exclusive holder or permit. */
extern int64_t zkl_lock_token(const ZklLock *lock);

/* Returns whether a node is known to be gone unreleased, or the session has ended. */
extern bool zkl_lock_is_lost(ZklLock *lock);

/*
 * Returns how often the lock's release was requested since the grant.  Programs request
 * it by setting the data of one of its nodes to __REVOKE__, as Curator's Revoker does.
 */
extern int	zkl_lock_revocations(ZklLock *lock);

/*
 * Reduces the lock to at most this mode: EXCLUSIVE to SHARED is a downgrade, NONE
 * releases the lock and invalidates the pointer.  Never fails; if the connection is
 * lost, the change is queued and sent after reconnecting.  Not for a lock that a request
 * upgrades: end that request first, or take the lock from it.
 */
extern void zkl_lock_reduce(ZklLock *lock, ZklMode mode);

/*
 * Releases the lock and invalidates the pointer, like a reduction to NONE, but keeps its
 * node for at most keep_ms, if it was requested with "may_be_kept" and no other session has
 * asked for it.  A kept lock is not held: nothing depends on it, and its loss is silent.  The
 * session gives it up when another one asks for it, when its place is needed for another
 * node, and at the end.
 */
extern void zkl_lock_keep(ZklLock *lock, int keep_ms);

/*
 * Requests a lock that the session keeps in this mode: mostly granted at once, without a
 * request to the ensemble.  Returns NULL if the session does not keep it, or memory is
 * exhausted.
 */
extern ZklRequest *zkl_kept_request(ZklSession *session, const char *name, ZklMode mode,
									bool non_blocking);

/* Gives up everything that is kept: a session must before it waits for deadlocks to be found. */
extern void zkl_session_leave_kept(ZklSession *session);

/* Gives up what is kept of one lock. */
extern void zkl_session_leave_kept_of(ZklSession *session, const char *name);

/* Returns whether these data are of a node that may be kept, and is not known to be in use. */
extern bool zkl_is_kept(const char *data, int data_len);

/* Releases between these calls, which may nest, are sent in one request at the last end. */
extern void zkl_releases_begin(ZklSession *session);
extern void zkl_releases_end(ZklSession *session);


/*
 * Long waits, and deadlocks among sessions of any servers
 */

/* The kinds of holds of a session, as shown in PostgreSQL's lock manager. */
typedef enum ZklHeldKind
{
	ZKL_HELD_EXCLUSIVE = 'x',
	ZKL_HELD_SHARED = 's',
	ZKL_HELD_PERMIT = 'p'
} ZklHeldKind;

typedef struct ZklHeld
{
	uint32_t	key;			/* of the name, as ZklDetectorCallbacks.key_of returns it */
	ZklHeldKind kind;
} ZklHeld;

/*
 * A session of this server that waits for the detector's one in its lock manager, and holds
 * something.
 */
typedef struct ZklLocalWaiter
{
	int64_t		session_id;
	int			pid;
	uint64_t	identity;		/* of its wait and of all between it and that session */
	const char *waits_for;		/* for messages */
	bool		only_for_place; /* would only inherit that session's place in a queue */
	const ZklHeld *held;		/* everything it holds */
	int			n_held;
} ZklLocalWaiter;

/*
 * What a detector needs of its owner.  "await" and "pause" wait in the owner's wait loop;
 * they return false if the step must end, because the request is decided or its time is
 * over.  Instead of returning, they may leave the step with longjmp().
 */
typedef struct ZklDetectorCallbacks
{
	/* waits until the batch is answered */
	bool		(*await) (void *arg, ZklBatch *batch);
	/* waits for so long, or until the session's descriptor is readable */
	bool		(*pause) (void *arg, int ms);
	/* finds the local waiters on the server; valid until the next call */
	int			(*find_waiters) (void *arg, const ZklLocalWaiter **local_waiters);
	/* returns a hash of an encoded name, the same on all servers */
	uint32_t	(*key_of) (void *arg, const char *name);
} ZklDetectorCallbacks;

typedef struct ZklDetectorConfig
{
	int			pid;
	const char *server;			/* for messages; must exist as long as the detector */
	bool		may_requeue;	/* the owner can give up its place in the queue and queue again */
} ZklDetectorConfig;

/* A session of a cycle.  It waits for the session of the next edge; the last, of the first. */
typedef struct ZklDeadlockEdge
{
	int64_t		session_id;
	int			pid;
	const char *server;			/* any bytes; also waits_for */
	const char *waits_for;		/* a wait on its server; else NULL */
	const char *name;			/* encoded: a wait for this lock or semaphore; else NULL */
	ZklMode		mode;			/* ... NONE: for a permit */
} ZklDeadlockEdge;

typedef struct ZklDeadlock
{
	bool		keeps_place;	/* the caller only keeps a place in a queue, and must requeue */
	int			n;
	const ZklDeadlockEdge *edges;	/* the caller's first */
} ZklDeadlock;

/* Detects deadlocks during one long wait of a request. */
typedef struct ZklDetector ZklDetector;

/* Returns NULL if memory is exhausted. */
extern ZklDetector *zkl_detector_begin(ZklSession *session, ZklRequest *request,
									   const ZklDetectorConfig *config,
									   const ZklDetectorCallbacks *callbacks, void *arg);

/*
 * Publishes the wait, answers other sessions, and searches, as far as this is due.  Waits
 * in callbacks.  To be called at *next_ms, and when the session's descriptor is readable.
 * Returns NULL, or a deadlock that the caller must end by ending the request, and that is valid
 * until the detector ends.  *is_limited: a deadlock may stay hidden, because something is
 * too large.
 */
extern const ZklDeadlock *zkl_detector_step(ZklDetector *detector, int64_t *next_ms,
											bool *is_limited);

/* Frees the detector, also after a callback has left a step, and withdraws the report. */
extern void zkl_detector_end(ZklDetector *detector);


/*
 * What a detector needs of the layer, besides batches (batch.h)
 */

/* The places where a request has nodes; the letters are those of wait reports. */
typedef enum ZklWaitPlace
{
	ZKL_PLACE_LOCK = 'l',		/* <root>/locks/<name> */
	ZKL_PLACE_MUTEX = 'm',		/* <root>/semaphores/<name>/locks */
	ZKL_PLACE_PERMITS = 'p'		/* <root>/semaphores/<name>/leases */
} ZklWaitPlace;

/* A node that a request waits with. */
typedef struct ZklWaitNode
{
	ZklWaitPlace place;
	const char *name;			/* path component of the lock or semaphore */
	const char *child;			/* the node's name */
	int			capacity;		/* PERMITS: how many permits the session counts */
} ZklWaitNode;

/* The wait of a request, as it is at this moment. */
typedef struct ZklWait
{
	bool		may_block;		/* others, apart from its local waiters, can wait for the session */
	int			n_nodes;		/* 0: the request does not wait, or something of it is changing */
	ZklWaitNode nodes[];
} ZklWait;

/* Returns the wait, to be freed with free(); NULL if memory is exhausted. */
extern ZklWait *zkl_request_wait(ZklRequest *request);

/*
 * Deletes a child of "parent" that may exist or not, without waiting: as nodes are released,
 * also together between zkl_releases_begin() and zkl_releases_end().
 */
extern void zkl_delete_later(ZklSession *session, const char *parent, const char *child);

/* Returns whether such a delete, or the release of a node there, is not finished. */
extern bool zkl_is_deleting_below(ZklSession *session, const char *parent);


/*
 * Log lines of the client library; any thread
 */

typedef enum ZklLogLevel
{
	ZKL_LOG_ERROR = 1,
	ZKL_LOG_WARNING,
	ZKL_LOG_INFO,
	ZKL_LOG_DEBUG
} ZklLogLevel;

/* Drops lines above this level at their source, for the whole process. */
extern void zkl_log_set_level(ZklLogLevel level);

/* Takes the oldest line: any bytes, cut to fit, and a NUL.  Returns false if none. */
extern bool zkl_log_take(char *line, size_t size);

/* Stores what the library complained of since it was connected last; "" if nothing. */
extern void zkl_log_last_problem(char *line, size_t size);

/* Counts the failures to set up TLS in this process; the library only logs them. */
extern unsigned zkl_tls_failures(void);

#endif							/* ZKL_RECIPE_H */
