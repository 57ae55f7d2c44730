/*-------------------------------------------------------------------------
 *
 * recipe.h
 *		Distributed locks over ZooKeeper: the contract of the recipe layer.
 *
 * This is the only header of the recipe layer that the PostgreSQL glue
 * includes.  The layer knows nothing of PostgreSQL: it never throws, never
 * exits, never prints.  Only zkl_session_close() blocks, for a time its
 * caller states.
 *
 * Threads: every function here is called by one thread, the owner of the
 * session.  The recipes advance on the client library's threads; what changed
 * is told by making the descriptor of zkl_session_fd() readable, after which
 * the owner looks at the states it is interested in.
 *
 * A session here is one ZooKeeper session.  When that is over (expired, lost,
 * refused), the object stays in its final state, every lock of it is lost,
 * and the owner closes it and opens another.
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
	ZKL_BUSY,					/* a try found another holder or waiter */
	ZKL_DEADLOCK,				/* two sharers of one lock both upgrade */
	ZKL_SESSION_LOST,			/* the session is over */
	ZKL_LOCK_LOST,				/* the lock to be upgraded is not held any more */
	ZKL_AUTH_FAILED,			/* the ensemble refused the credentials */
	ZKL_NO_AUTH,				/* the ensemble refused the operation by ACL */
	ZKL_NO_CHROOT,				/* the chroot of the connect string is missing */
	ZKL_TOO_MANY,				/* more nodes, or bytes of them, than a session may have */
	ZKL_NOT_DRAINING,			/* sequence numbers are used up and foreign nodes keep the lock's znode alive */
	ZKL_NOT_SUPPORTED,			/* shared mode under a dialect that has none */
	ZKL_OTHER_SIZE,				/* the semaphore has another one; see ZklRequestInfo.size */
	ZKL_OTHER_LAYOUT,			/* the semaphore is in use with the other family of names */
	ZKL_NO_MEMORY,
	ZKL_SERVER_ERROR			/* anything else; see ZklRequestInfo.raw_code */
} ZklStatus;

/* An English phrase for messages and logs. */
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

/* Whose node names to use; every dialect's nodes count as contenders. */
typedef enum ZklDialect
{
	ZKL_DIALECT_CURATOR,		/* InterProcessReadWriteLock */
	ZKL_DIALECT_CURATOR_MUTEX,	/* InterProcessMutex; no shared mode */
	ZKL_DIALECT_KAZOO			/* Lock, WriteLock, ReadLock */
} ZklDialect;

/* The longest encoded form of a name of "bytes" bytes, with the closing NUL. */
#define ZKL_ENCODED_SIZE(bytes) ((bytes) * 3 + 1)

/*
 * Percent-encodes a name so that it is one component of a znode path: bytes
 * outside A-Za-z0-9_.:@~+=- become %XX, and the names "." and ".." are
 * encoded whole.  "out" has room for ZKL_ENCODED_SIZE(length).  Pure.
 */
extern void zkl_encode_name(const char *name, size_t length, char *out);


/*
 * Sessions
 */

typedef enum ZklSessionState
{
	ZKL_SESSION_CONNECTING,		/* not connected yet */
	ZKL_SESSION_CONNECTED,
	ZKL_SESSION_SUSPENDED,		/* the connection is lost, the session may live */
	ZKL_SESSION_EXPIRED,		/* final: expired, or declared lost by the clock */
	ZKL_SESSION_AUTH_FAILED		/* final */
} ZklSessionState;

typedef struct ZklSessionConfig
{
	const char *connect_string; /* host:port,...[/chroot] */
	const char *root;			/* absolute path, no slash at the end */
	int			session_timeout_ms;
	const char *digest;			/* "user:password", or NULL */
	const char *tls;			/* "CA file,certificate file,key file,passphrase", or NULL: no TLS */
	bool		creator_acl;
	ZklDialect	dialect;
	int			max_nodes;
	int32_t		sequence_limit; /* 0: ZKL_SEQUENCE_LIMIT */

	/*
	 * Called when a lock that the owner has taken is lost: on a thread of the
	 * client's, or of the owner's that takes it.  Async-signal-safe work only;
	 * must not call back into the layer.  May be NULL.
	 */
	void		(*on_loss_io) (void);

	/* The same for a lock that is asked back. */
	void		(*on_revoke_io) (void);
} ZklSessionConfig;

/* Far enough below 2^31 for requests in flight and upgrades, which may pass it. */
#define ZKL_SEQUENCE_LIMIT 2147000000

typedef struct ZklSessionInfo
{
	ZklSessionState state;
	int64_t		session_id;		/* 0 before the first connection */
	int			session_timeout_ms; /* as negotiated; 0 before */
	char		server[64];		/* address:port last connected to, or empty */
	int64_t		connected_ms;	/* how long ago the session began */
	int64_t		lease_ms;		/* what is left of the lease; 0 when over */
	int			n_locks;		/* held */
	uint64_t	n_answers;		/* of the ensemble, so far */
} ZklSessionInfo;

/*
 * Starts a session and returns at once; connecting goes on in threads of its
 * own.  NULL when memory, descriptors or threads are exhausted.  All signals
 * are blocked in the threads it starts.  Everything in the configuration is
 * copied.
 */
extern ZklSession *zkl_session_open(const ZklSessionConfig *config);

/*
 * Ends the session at the ensemble, which removes its nodes, and frees it with
 * all its requests and locks.  Blocks for at most timeout_ms; when that does
 * not suffice its threads go on with it, and free it in the end.
 */
extern void zkl_session_close(ZklSession *session, int timeout_ms);

/* Readable when something changed.  Stays valid until the session is closed. */
extern int	zkl_session_fd(const ZklSession *session);

/* Makes the descriptor unreadable; call before looking at states. */
extern void zkl_session_clear_wakeup(ZklSession *session);

extern ZklSessionState zkl_session_state(ZklSession *session);
extern void zkl_session_info(ZklSession *session, ZklSessionInfo *info);

/* The session lives, as far as is known, and nothing that it holds was lost. */
extern bool zkl_session_is_intact(ZklSession *session);

/* What a release or a commit must know of the above. */
typedef struct ZklLease
{
	int64_t		session_id;
	int			session_timeout_ms;
	int64_t		left_ms;
} ZklLease;

extern ZklLease zkl_session_lease(ZklSession *session);

/*
 * Asks the ensemble, through its quorum, whether the session lives and all
 * nodes of held locks exist, also when there are none; poll with zkl_session_confirmed().  A second call
 * while one is under way joins it.  Never blocks.
 */
extern void zkl_session_confirm(ZklSession *session);

/* PENDING, OK, SESSION_LOST, or another status when the question failed; after OK look at zkl_lock_is_lost(). */
extern ZklStatus zkl_session_confirmed(ZklSession *session);


/*
 * Locks
 */

typedef struct ZklLockWish
{
	const char *name;			/* encoded; below <root>/locks/ */
	ZklMode		mode;
	ZklLock    *held;			/* what this session holds of it already, or NULL */
} ZklLockWish;

/*
 * Queues for all the wishes at once: one multi when there are several.  Names
 * are distinct; a wish never asks for a mode that "held" covers.  "data" tells
 * readers of the nodes who holds them.  With "try_only" the request ends BUSY
 * instead of waiting for others.  Returns NULL only when memory is exhausted;
 * all else is told by zkl_request_status().  Never blocks; if the session is
 * not connected the request starts when it is.
 */
extern ZklRequest *zkl_lock_request(ZklSession *session,
									const ZklLockWish *wishes, int n_wishes,
									bool try_only,
									const char *data, int data_len);

/*
 * Queues for one permit of a semaphore of this size; "name" is encoded, and
 * lives below <root>/semaphores/.  A session may have any number of permits,
 * each by a request of its own.  What is granted is a ZklLock with a token like
 * any other, to be reduced to NONE.  All else is as for zkl_lock_request();
 * with "try_only", others that just take or give back a permit are waited for,
 * as that is over soon.
 */
extern ZklRequest *zkl_permit_request(ZklSession *session, const char *name,
									  int size, bool try_only,
									  const char *data, int data_len);

/* PENDING until every wish is granted (OK) or the request has failed.  A failed request holds nothing. */
extern ZklStatus zkl_request_status(ZklRequest *request);

typedef struct ZklRequestInfo
{
	bool		blocked;		/* now waits for another session to leave */
	bool		was_blocked;	/* did so at any time */
	uint64_t	n_answers;		/* of the ensemble to this session, so far */
	int			raw_code;		/* the client library's code for SERVER_ERROR */
	int			culprit;		/* index of the wish that failed or waits, or -1 */
	uint64_t	question;		/* for ZklTale; when it changes, a new tale is wanted */
	bool		is_permit;		/* asks for one, not for locks */
	int			size;			/* of the semaphore, for OTHER_SIZE */
	char		blocker[512];	/* data of the node waited for, NUL-terminated, maybe cut; any bytes */
} ZklRequestInfo;

extern void zkl_request_info(ZklRequest *request, ZklRequestInfo *info);

/* Takes the lock granted for wish i of a request that is OK: to be called once. */
extern ZklLock *zkl_request_lock(ZklRequest *request, int i);

/*
 * Forgets the request, in any state.  What was not granted, or granted and not
 * taken, is given up: the layer removes its nodes by itself, also when it is
 * unknown whether they were made.  Never blocks.
 */
extern void zkl_request_end(ZklRequest *request);

/* Grows with every exclusive holder of the lock, or permit: the czxid of its first node. */
extern int64_t zkl_lock_token(const ZklLock *lock);

/* The node is known to be gone although nobody released it, or the session is over. */
extern bool zkl_lock_is_lost(ZklLock *lock);

/*
 * How often was the lock asked back since it was granted?  Others do that by
 * making __REVOKE__ the data of one of its nodes, as Curator's Revoker does.
 */
extern int	zkl_lock_revocations(ZklLock *lock);

/*
 * Keeps at most this mode: EXCLUSIVE to SHARED is a downgrade, NONE releases
 * and invalidates the pointer.  Never blocks, never fails; while disconnected
 * it is remembered and done later.  Not for a lock that a pending request
 * upgrades.
 */
extern void zkl_lock_reduce(ZklLock *lock, ZklMode mode);

/*
 * Between the two, what is reduced to NONE is collected; at the end its nodes go
 * in one request.  Neither blocks.
 */
extern void zkl_releases_begin(ZklSession *session);
extern void zkl_releases_end(ZklSession *session);


/*
 * Long waits, and deadlocks among sessions of any servers
 */

/* A session of the same server that waits for the teller's in its lock manager. */
typedef struct ZklDependent
{
	int64_t		session_id;
	int			pid;
	const char *waits_for;		/* in words */
	bool		in_line;		/* would take the teller's place if that one gave way */
} ZklDependent;

/* What others need to know of a session that waits. */
typedef struct ZklTale
{
	uint64_t	instance;		/* of the server: a number of its own at each start */
	int			pid;
	const char *server;
	const char *const *locks;	/* what each wish is for, in words */
	const ZklDependent *dependents; /* as of now, in ascending order */
	int			n_dependents;
	uint64_t	question;		/* ZklRequestInfo's, from before "now" */
} ZklTale;

/* Who waits, for what; the next one is in its way, and the first in the last one's. */
typedef struct ZklDeadlockEdge
{
	uint64_t	instance;
	int			pid;
	const char *server;			/* any bytes, as the next */
	const char *waits_for;
} ZklDeadlockEdge;

typedef struct ZklDeadlock
{
	bool		keeps_place;	/* the caller only stands before others in line */
	int			n;
	ZklDeadlockEdge edges[];	/* the caller's first */
} ZklDeadlock;

/*
 * Tells the others of a request that has waited for long, and looks whether
 * they all wait for each other.  To be called again now and then, and when
 * ZklRequestInfo.question has changed; the end of the wait is noticed here.
 * Returns the deadlock, once there is one that the caller is to end by ending
 * the request, else NULL; it lives until the next call for the session.  Never
 * blocks.
 */
extern const ZklDeadlock *zkl_request_tell(ZklRequest *request,
										   const ZklTale *tale);


/*
 * Surveys: what stands in the queues, whoever put it there
 */

typedef struct ZklSurvey ZklSurvey;

typedef enum ZklKind
{
	ZKL_KIND_LOCK,				/* below <root>/locks/ */
	ZKL_KIND_SEMAPHORE			/* below <root>/semaphores/, Curator's and kazoo's */
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
	const char *child;			/* the last component of that */
	ZklMode		mode;			/* NONE: a permit */
	ZklMaker	maker;			/* as far as the name tells */
	int			position;		/* 0: granted; else the place among those who wait, from 1 */
	bool		is_readable;	/* if not, what follows is not known */
	int64_t		token;			/* czxid; of an upgrade, that of its shared node */
	int64_t		session_id;		/* 0: not ephemeral */
	int64_t		ctime_ms;		/* when it was made, since 1970, by the leader's clock */
	const char *data;			/* any bytes, maybe cut */
	int			data_len;
} ZklEntry;

/*
 * Starts to read everything below the root, or one lock or semaphore, and
 * returns at once; NULL when memory is exhausted.  Many requests are in flight
 * together.  What was written before the call is seen; what comes and goes
 * meanwhile may be seen or not.  A lost connection is waited for.
 */
extern ZklSurvey *zkl_survey_all(ZklSession *session);
extern ZklSurvey *zkl_survey_one(ZklSession *session, ZklKind kind, const char *name);

/*
 * The same for a lock, and then has every holder's node say this, as Curator's
 * Revoker does.
 */
#define ZKL_REVOKE_MESSAGE "__REVOKE__"
extern ZklSurvey *zkl_revoke(ZklSession *session, const char *name);

/* PENDING, OK, or why it failed.  Never blocks. */
extern ZklStatus zkl_survey_status(ZklSurvey *survey);

typedef struct ZklSurveyInfo
{
	int			n_entries;
	const ZklEntry *entries;	/* by kind, name and place; until the survey is ended */
	int			n_denied;		/* znodes that the ACLs do not let us read, or set */
	int			n_asked;		/* holders, by zkl_revoke() */
	int			raw_code;		/* the client library's code for SERVER_ERROR */
} ZklSurveyInfo;

/* For a survey that is not pending. */
extern void zkl_survey_info(ZklSurvey *survey, ZklSurveyInfo *info);

/* Forgets the survey, in any state.  Never blocks. */
extern void zkl_survey_end(ZklSurvey *survey);


/*
 * Log lines of the client library
 */

typedef enum ZklLogLevel
{
	ZKL_LOG_ERROR = 1,
	ZKL_LOG_WARNING,
	ZKL_LOG_INFO,
	ZKL_LOG_DEBUG
} ZklLogLevel;

/* Lines above this level are dropped at the source.  For the whole process. */
extern void zkl_log_set_level(ZklLogLevel level);

/*
 * Takes the oldest line out of the process's ring buffer; false when there is
 * none.  The line is cut to fit and NUL-terminated; any bytes.
 */
extern bool zkl_log_take(ZklLogLevel *level, char *line, size_t size);

/* How often a TLS connection could not be had since the process began: the library tells in its log alone. */
extern unsigned zkl_tls_failures(void);

#endif							/* ZKL_RECIPE_H */
