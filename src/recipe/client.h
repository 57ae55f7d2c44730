/*-------------------------------------------------------------------------
 *
 * client.h
 *		The narrow seam between the recipes and the ZooKeeper client library.
 *
 * zk_client.c and zk_multi.c implement it with libzookeeper_mt;
 * test/unit/fake_client.c implements it with a ZooKeeper of its own that fails on
 * demand.  Nothing else of the client library is visible to the recipes.
 *
 * Rules of the seam:
 *
 * - Every operation is asynchronous.  An operation that returned true is
 *   answered exactly once by calling completion->done_io, on a thread of the
 *   client's, never from inside the call that submitted it; an operation that
 *   returned false was not sent and is never answered.  An operation that is
 *   still unanswered when zkl_client_close() returns stays unanswered.
 * - Answers and events arrive one at a time, in the order the server and the
 *   connection produced them.
 * - Operations may be submitted from any thread, with the caller's mutex held.
 * - Strings and buffers passed in are copied before the call returns.
 * - Nothing here throws, exits, prints, or knows about PostgreSQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_CLIENT_H
#define ZKL_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ZklClient ZklClient;

/* What the server, or the way to it, made of an operation. */
typedef enum ZklResultCode
{
	ZKL_RC_OK = 0,
	ZKL_RC_CONNECTION_LOSS,		/* outcome unknown: it may have happened */
	ZKL_RC_NO_NODE,
	ZKL_RC_NODE_EXISTS,
	ZKL_RC_NOT_EMPTY,
	ZKL_RC_BAD_VERSION,			/* set: somebody changed the data meanwhile */
	ZKL_RC_NO_AUTH,				/* refused by ACL, or the ACL is invalid */
	ZKL_RC_AUTH_FAILED,			/* the ensemble refused the credentials */
	ZKL_RC_SESSION_EXPIRED,
	ZKL_RC_UNIMPLEMENTED,
	ZKL_RC_ROLLED_BACK,			/* multi only: another operation failed */
	ZKL_RC_OTHER				/* see ZklResult.raw_code */
} ZklResultCode;

typedef enum ZklConnectionEvent
{
	ZKL_EVENT_CONNECTED,		/* the session is usable, for the first time or again */
	ZKL_EVENT_DISCONNECTED,		/* the connection went; the session may live on */
	ZKL_EVENT_EXPIRED,			/* the ensemble ended the session; final */
	ZKL_EVENT_AUTH_FAILED		/* credentials refused; final */
} ZklConnectionEvent;

/* Filled in for ZKL_EVENT_CONNECTED. */
typedef struct ZklConnectionInfo
{
	int64_t		session_id;
	int			session_timeout_ms; /* as negotiated */
	char		server[64];		/* address:port */
} ZklConnectionInfo;

typedef struct ZklEvents
{
	void		(*connection_io) (void *context, ZklConnectionEvent event,
								  const ZklConnectionInfo *info);
	/* a watch set on "path" by zkl_client_get() or ..._watch_children() fired */
	void		(*watch_io) (void *context, const char *path);
	/* the time given to zkl_client_set_alarm() has come */
	void		(*alarm_io) (void *context);
	/* the last call, if zkl_client_close() returned false: all is over now */
	void		(*abandoned_io) (void *context);
} ZklEvents;

typedef struct ZklClientConfig
{
	const char *connect_string; /* host:port,...[/chroot] */
	int			session_timeout_ms; /* to ask for */
	const char *digest;			/* "user:password", or NULL */
	const char *tls;			/* files of CA, certificate, key; passphrase; or NULL: no TLS */
	bool		creator_acl;	/* nodes: all rights to the creator, read to others */
} ZklClientConfig;

/* An answer.  Pointers are valid only during the call of done_io. */
typedef struct ZklResult
{
	ZklResultCode code;
	int			raw_code;		/* the client library's own, for messages */
	const char *path;			/* create: the path made */
	int64_t		czxid;			/* create, get: transaction that made the node */
	int32_t		version;		/* get: of the data */
	int64_t		owner;			/* get: session of an ephemeral node, or 0 */
	int64_t		ctime_ms;		/* get: when it was made, since 1970 by the leader's clock */
	const char *data;			/* get */
	int			data_len;
	const char *const *children;	/* list: names without their parent */
	int			n_children;
	int			n_ops;			/* multi */
	const ZklResultCode *op_codes;
	const char *const *op_paths;	/* multi: path made by each create */
} ZklResult;

/* Embedded as the first member of the submitter's own structure. */
typedef struct ZklCompletion
{
	void		(*done_io) (struct ZklCompletion *completion,
							const ZklResult *result);
} ZklCompletion;

typedef enum ZklCreateKind
{
	ZKL_CREATE_PERSISTENT,
	ZKL_CREATE_CONTAINER,
	ZKL_CREATE_EPHEMERAL,
	ZKL_CREATE_EPHEMERAL_SEQUENTIAL
} ZklCreateKind;

typedef enum ZklOpKind
{
	ZKL_OP_CREATE,
	ZKL_OP_DELETE,
	ZKL_OP_CHECK				/* exists? */
} ZklOpKind;

/* One operation of a multi. */
typedef struct ZklOp
{
	ZklOpKind	kind;
	const char *path;
	ZklCreateKind create_kind;
	const char *data;
	int			data_len;
} ZklOp;

/*
 * Starts a client and returns at once; name resolution and connecting happen
 * on its own threads.  NULL when memory or threads are exhausted.  The caller
 * must be the process that will use and close it.
 */
extern ZklClient *zkl_client_open(const ZklClientConfig *config,
								  const ZklEvents *events, void *context);

/*
 * Ends the session at the ensemble if it is connected, stops the client's
 * threads and frees it.  When answers are due it waits for them first, for a
 * second.  Waits at most timeout_ms; false means that this did
 * not happen in time: the client's threads go on closing by themselves, may
 * still call back, and call abandoned_io in the end.  Must not be called with a
 * mutex held that a callback takes.
 */
extern bool zkl_client_close(ZklClient *client, bool answers_due, int timeout_ms);

/* Asks for one alarm_io at or after this time (zkl_client_now), replacing an earlier wish. */
extern void zkl_client_set_alarm(ZklClient *client, int64_t at_ms);

/* Milliseconds on a monotonic clock that counts suspended time. */
extern int64_t zkl_client_now(void);

extern bool zkl_client_create(ZklClient *client, const char *path,
							  const char *data, int data_len,
							  ZklCreateKind kind, ZklCompletion *completion);
extern bool zkl_client_delete(ZklClient *client, const char *path,
							  ZklCompletion *completion);

/* Reads the data; with "watch", a later change or deletion calls watch_io.  A missing node leaves no watch. */
extern bool zkl_client_get(ZklClient *client, const char *path, bool watch,
						   ZklCompletion *completion);

/* Replaces the data, if they still have this version, or it is ZKL_ANY_VERSION. */
#define ZKL_ANY_VERSION (-1)
extern bool zkl_client_set(ZklClient *client, const char *path,
						   const char *data, int data_len, int32_t version,
						   ZklCompletion *completion);
extern bool zkl_client_list(ZklClient *client, const char *path,
							ZklCompletion *completion);

/* Lists; a child that comes or goes later calls watch_io.  A missing node leaves no watch. */
extern bool zkl_client_watch_children(ZklClient *client, const char *path,
									  ZklCompletion *completion);

/* Lets later reads of this connection see every write that the leader has seen by now. */
extern bool zkl_client_sync(ZklClient *client, const char *path,
							ZklCompletion *completion);

/* All or nothing. */
extern bool zkl_client_multi(ZklClient *client, const ZklOp *ops, int n_ops,
							 ZklCompletion *completion);

/* Client library log lines above this level (1 error ... 4 debug) are dropped. */
extern void zkl_client_set_log_level(int level);

#endif							/* ZKL_CLIENT_H */
