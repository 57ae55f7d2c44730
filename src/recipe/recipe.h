/*-------------------------------------------------------------------------
 *
 * recipe.h
 *		Interface of the recipe layer: distributed locks over ZooKeeper.
 *
 * This is the only header of the recipe layer that the PostgreSQL side includes.
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
	ZKL_TOO_MANY,				/* limit of a session's nodes or their bytes, or a scan's znodes */
	ZKL_SEQUENCE_USED_UP,		/* until the lock's queue has been empty */
	ZKL_NOT_SUPPORTED,			/* these node names have no shared mode */
	ZKL_OTHER_CAPACITY,			/* the semaphore has capacity ZklRequestInfo.capacity */
	ZKL_NO_MEMORY,
	ZKL_SERVER_ERROR			/* anything else; see ZklRequestInfo.raw_code */
} ZklStatus;

/* Returns an English phrase for messages and logs. */
extern const char *zkl_status_text(ZklStatus status);


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

/* Size of the longest encoded form of a name of "bytes" bytes, with the NUL. */
#define ZKL_ENCODED_SIZE(bytes) ((bytes) * 3 + 1)

/*
 * Percent-encodes a name so that it is one component of a znode path: bytes
 * outside A-Za-z0-9_.:@~+=- become %XX, and the names "." and ".." are
 * encoded whole.  "out" has room for ZKL_ENCODED_SIZE(length).  Any thread.
 */
extern void zkl_encode_name(const char *name, size_t length, char *out);


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
	uint32_t	server_tag;		/* of all sessions that share local locks; in the names of nodes */

	/*
	 * Called with the session's mutex held, on any of its threads, when a lock
	 * that the owner has taken is lost; not if a confirmation or an upgrade finds
	 * the loss.  Must be async-signal-safe and not call the layer.  May be NULL.
	 */
	void		(*on_loss_io) (void);

	/* The same when the release of a lock is requested. */
	void		(*on_revoke_io) (void);
} ZklSessionConfig;

/* Limit of max_nodes: the paths, of 70 bytes at least, must fit into one packet. */
#define ZKL_MAX_NODES 7143

/* Leaves room below 2^31 for requests in flight and upgrades, which may exceed it. */
#define ZKL_SEQUENCE_LIMIT 2147000000

typedef struct ZklSessionInfo
{
	ZklSessionState state;
	int64_t		session_id;		/* 0 before the first connection */
	int			session_timeout_ms; /* as negotiated; 0 before */
	char		server[64];		/* address:port of the last connection, or empty */
	int64_t		connected_ms;	/* since the session began */
	int64_t		lease_ms;		/* remaining lease; 0 when over */
	int			n_locks;		/* held */
	uint64_t	n_answers;		/* received so far */
} ZklSessionInfo;

/* Starts a session and returns at once; NULL when memory, descriptors or threads are exhausted. */
extern ZklSession *zkl_session_open(const ZklSessionConfig *config);

/*
 * Ends the session at the ensemble, which removes its nodes, and frees it with all
 * its requests and locks.  Blocks for at most timeout_ms, and not at all while the
 * connection is lost; the I/O thread then does the rest and frees the session.
 */
extern void zkl_session_close(ZklSession *session, int timeout_ms);

/* Sessions with descriptors, also closing ones; a thread of theirs, or a lookup, runs. */
extern int	zkl_sessions_open(void);
extern bool zkl_threads_are_running(void);

/* Returns the descriptor that is readable when something changed; valid until close. */
extern int	zkl_session_fd(const ZklSession *session);

/*
 * The owner calls these around its sleep on the descriptor, and reads the states soon after.
 * In between, the I/O thread leaves reading from the server to the owner.
 */
extern void zkl_session_sleeps(ZklSession *session);
extern void zkl_session_woke(ZklSession *session);

/* Reads what the server has sent and resets the descriptor; call before reading states. */
extern void zkl_session_receive(ZklSession *session);

extern ZklSessionState zkl_session_state(ZklSession *session);

/* Returns whether the session's node names have this mode.  Any thread. */
extern bool zkl_session_has_mode(const ZklSession *session, ZklMode mode);
extern void zkl_session_info(ZklSession *session, ZklSessionInfo *info);

/* Returns whether others may change the root or a child; needs creator_acl and a grant. */
extern bool zkl_session_has_open_parents(ZklSession *session);

/* Returns whether, as far as is known, the session lives and no lock of it is lost. */
extern bool zkl_session_is_intact(ZklSession *session);

/* The state of a session that a release or a commit depends on. */
typedef struct ZklLease
{
	int64_t		session_id;
	int			session_timeout_ms;
	int			reserve_ms;		/* must be left for a commit without confirmation */
	int64_t		left_ms;		/* remaining; 0 when over */
} ZklLease;

extern ZklLease zkl_session_lease(ZklSession *session);

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
 * caller checks zkl_lock_is_lost().  OK means that at least ZklLease.reserve_ms are left of
 * the confirmed lease; if the answer came too late for that, the ensemble is asked
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
} ZklLockItem;

/*
 * Queues for all items at once, with one multi if there are several.  The names are
 * distinct, and no item asks for a mode that "held" covers.  "data" describes the
 * holder to readers of the nodes.  "non_blocking" is a non-blocking attempt: it ends with
 * BUSY if others are first.  But the caller has the local locks, so a node before whose
 * name has the server_tag is a pending delete; the attempt waits for it, and the caller
 * ends the request if that takes too long.  Returns NULL only when memory is exhausted;
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
	bool		was_blocked;	/* has waited at any time */
	uint64_t	progress;		/* grows with each answer that brings the request further */
	int			raw_code;		/* the client library's code for SERVER_ERROR */
	int			culprit;		/* index of the item that failed or waits, or -1 */
	uint64_t	probe;			/* for ZklWaitReport; a change requires a new report */
	bool		is_unsearched;	/* deadlocks may remain undetected: too many reports */
	int			n_excess;		/* BUSY, for a permit: so many permits of others must go */
	int			n_others;		/* ... permits that zkl_request_others() lists */
	bool		is_permit;		/* the request is for a permit, not for locks */
	int			capacity;		/* the semaphore's capacity, for OTHER_CAPACITY */
	char		blocker[512];	/* the blocking node's data: any bytes, maybe cut, and a NUL */
} ZklRequestInfo;

extern void zkl_request_info(ZklRequest *request, ZklRequestInfo *info);

/*
 * Stores the sessions of the others that have permits, for an attempt that is BUSY: there
 * are no local locks of permits, but the caller knows which permits its server has
 * released.  In ascending order, once for each permit; 0 if unknown.  Returns their
 * number, at most "max".
 */
extern int	zkl_request_others(ZklRequest *request, int64_t *sessions, int max);

/* Takes the lock granted for item i of a request that is OK; to be called once. */
extern ZklLock *zkl_request_lock(ZklRequest *request, int i);

/*
 * Ends and frees the request, in any state.  Releases what was not granted, or granted
 * and not taken: the layer removes its nodes by itself, even if it is unknown whether
 * they were created.
 */
extern void zkl_request_end(ZklRequest *request);

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
	uint32_t	key;			/* of the name, as in ZklWaitReport.keys */
	ZklHeldKind kind;
} ZklHeld;

/* A session of this server that waits for the reporting one in its lock manager. */
typedef struct ZklLocalWaiter
{
	int64_t		session_id;
	int			pid;
	const char *waits_for;		/* for messages */
	bool		only_for_place; /* would only inherit the reporting one's place in a queue */
	const ZklHeld *held;		/* everything it holds */
	int			n_held;
} ZklLocalWaiter;

/* A waiting session's report, with which other sessions find deadlocks. */
typedef struct ZklWaitReport
{
	uint64_t	instance;		/* of the server; a new number at each start */
	int			pid;
	const char *server;
	const char *const *locks;	/* a text for each item, for messages */
	const uint32_t *keys;		/* a hash of each item's name, the same on all servers */
	const ZklLocalWaiter *local_waiters;	/* current, by session */
	int			n_local_waiters;
	uint64_t	probe;			/* ZklRequestInfo.probe, read before local_waiters */
} ZklWaitReport;

/* A session of a cycle.  It waits for the session of the next edge; the last, of the first. */
typedef struct ZklDeadlockEdge
{
	uint64_t	instance;
	int64_t		session_id;
	int			pid;
	const char *server;			/* any bytes; also waits_for */
	const char *waits_for;
} ZklDeadlockEdge;

typedef struct ZklDeadlock
{
	bool		keeps_place;	/* the caller only keeps a place in a queue */
	int			n;
	ZklDeadlockEdge edges[];	/* the caller's first */
} ZklDeadlock;

/*
 * Publishes that a request has waited for long, and searches all such reports for a
 * deadlock.  To be called periodically, when the session's descriptor is readable, and
 * when ZklRequestInfo.probe has changed; the layer withdraws the report when the wait
 * ends.  The search runs in this thread, without the mutex, for some tens of
 * milliseconds at most.  Returns NULL, or a deadlock that the caller must end by ending
 * the request, and free with zkl_deadlock_free().
 */
extern ZklDeadlock *zkl_request_publish(ZklRequest *request, const ZklWaitReport *report);

extern void zkl_deadlock_free(ZklDeadlock *deadlock);


/*
 * Scans: all nodes in the queues, also those of other programs
 */

typedef struct ZklScan ZklScan;

typedef enum ZklKind
{
	ZKL_KIND_LOCK,				/* below <root>/locks/ */
	ZKL_KIND_SEMAPHORE			/* below <root>/semaphores/ */
} ZklKind;

typedef enum ZklMaker
{
	ZKL_MAKER_OTHER,
	ZKL_MAKER_ZKLOCK,
	ZKL_MAKER_CURATOR,
	ZKL_MAKER_KAZOO
} ZklMaker;

/* One znode of a holder or waiter. */
typedef struct ZklEntry
{
	ZklKind		kind;
	const char *name;			/* of the lock or semaphore, encoded */
	const char *path;			/* of the znode */
	ZklMode		mode;			/* NONE: a permit */
	ZklMaker	maker;			/* as far as the name shows */
	int			position;		/* 0: granted; else the place among the waiters, from 1 */
	bool		is_readable;	/* if not, the members below are not known */
	int64_t		token;			/* czxid; of an upgrade, its shared node's */
	int64_t		session_id;		/* 0: not ephemeral */
	int64_t		ctime_ms;		/* creation, since 1970, on the leader's clock */
	const char *data;			/* any bytes, maybe cut */
	int			data_len;
} ZklEntry;

/* The data that a revocation writes into a holder's node. */
#define ZKL_REVOKE_MESSAGE "__REVOKE__"

/* The beginning of the data of a superuser's session. */
#define ZKL_SUPERUSER_DATA "{\"client\":\"zklock\",\"superuser\":true,"

typedef enum ZklScanKind
{
	ZKL_SCAN,					/* read the lock and the semaphore, or, without a name, all */
	ZKL_REVOKE,					/* read the lock, and request its release from the holders */
	ZKL_REVOKE_ORDINARY			/* ... except from sessions of superusers */
} ZklScanKind;

/*
 * Starts a scan and returns at once; NULL when memory is exhausted.  It sees all writes
 * before the call.  REVOKE_ORDINARY counts a holder whose release is already requested, and
 * writes nothing to its node.  "name" is encoded, or NULL.
 */
extern ZklScan *zkl_scan(ZklSession *session, ZklScanKind kind, const char *name);

/* Returns PENDING, OK, or why the scan failed. */
extern ZklStatus zkl_scan_status(ZklScan *scan);

typedef struct ZklScanInfo
{
	int			n_entries;
	const ZklEntry *entries;	/* by kind, name and position; freed with the scan */
	int			n_denied;		/* znodes that ACLs forbid to read, or to set */
	int			n_requested;	/* holders whose release is requested */
	int			n_spared;		/* REVOKE_ORDINARY: holders that are superusers */
	int			raw_code;		/* the client library's code for SERVER_ERROR */
	uint64_t	progress;		/* also while pending: as in ZklRequestInfo */
} ZklScanInfo;

/* Stores the result of a scan. */
extern void zkl_scan_info(ZklScan *scan, ZklScanInfo *info);

/* Ends and frees the scan, in any state. */
extern void zkl_scan_end(ZklScan *scan);


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
extern bool zkl_log_take(ZklLogLevel *level, char *line, size_t size);

/* Stores what the library complained of since it was connected last; "" if nothing. */
extern void zkl_log_last_problem(char *line, size_t size);

/* Counts the failures to set up TLS in this process; the library only logs them. */
extern unsigned zkl_tls_failures(void);

#endif							/* ZKL_RECIPE_H */
