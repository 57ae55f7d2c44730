/*-------------------------------------------------------------------------
 *
 * operation.h
 *		Operations of ZooKeeper and the results of their execution.
 *
 * The vocabulary of the client (client.h) and of batches (batch.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_OPERATION_H
#define ZKL_OPERATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Result of an operation, from the server, the library or the connection. */
typedef enum ZklResultCode
{
	ZKL_RC_OK = 0,
	ZKL_RC_CONNECTION_LOSS,		/* outcome unknown: it may have happened */
	ZKL_RC_NO_NODE,
	ZKL_RC_NODE_EXISTS,
	ZKL_RC_NOT_EMPTY,
	ZKL_RC_BAD_VERSION,			/* set, check: the data have another version */
	ZKL_RC_NO_AUTH,				/* forbidden by ACL, or the ACL is invalid */
	ZKL_RC_AUTH_FAILED,			/* the ensemble refused the credentials */
	ZKL_RC_SESSION_EXPIRED,
	ZKL_RC_ROLLED_BACK,			/* multi only: another operation failed */
	ZKL_RC_REFUSED,				/* certainly not done; see raw_code */
	ZKL_RC_LOCAL_SESSION,		/* the same, because the session may have no ephemeral nodes */
	ZKL_RC_OTHER				/* outcome unknown; see raw_code */
} ZklResultCode;

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
	ZKL_OP_CHECK,				/* the node exists; only in a multi */
	ZKL_OP_CHECK_VERSION,		/* ... and its data have this version */
	ZKL_OP_SET,					/* replace the data if they have this version */
	ZKL_OP_GET,					/* read the data */
	ZKL_OP_STAT,				/* the same without the data: only their length */
	ZKL_OP_GET_ACL,
	ZKL_OP_LIST,				/* the children */
	ZKL_OP_SYNC					/* later reads on this connection see what the leader has by now */
} ZklOpKind;

#define ZKL_ANY_VERSION (-1)

typedef struct ZklOp
{
	ZklOpKind	kind;
	const char *path;
	const char *child;			/* the operation is on this child of "path"; or NULL */
	ZklCreateKind create_kind;
	const char *data;			/* create, set */
	int			data_len;
	int32_t		version;		/* set: or ZKL_ANY_VERSION; check_version */
	bool		watch;			/* get, list: report a later change, while the connection lasts; not if no node */
} ZklOp;

typedef enum ZklRequestForm
{
	ZKL_SINGLE,					/* one operation */
	ZKL_MULTI					/* creates, deletes, sets and checks: does all or none */
} ZklRequestForm;

/* The result of an operation, or of a multi. */
typedef struct ZklResult
{
	ZklResultCode code;
	int			raw_code;		/* the client library's own, for messages */
	const char *path;			/* create: the path created */
	int64_t		czxid;			/* create, get, stat: transaction that created the node */
	int64_t		owner;			/* get, stat: session of an ephemeral node, or 0 */
	int64_t		ctime_ms;		/* get, stat: creation, since 1970, on the leader's clock */
	int32_t		version;		/* get, stat, set: of the data */
	bool		is_open;		/* get_acl: more than reading needs no credentials */
	const char *data;			/* get */
	int			data_len;		/* get, stat */
	const char *const *children;	/* list: names without their parent */
	int			n_children;
	int			n_ops;			/* multi: its operations; a failed one is ROLLED_BACK ... */
	const struct ZklResult *op_results; /* ... except the operation that failed */
} ZklResult;

/* Returns the size of what zkl_ops_copy() writes to "bytes". */
static inline size_t
zkl_ops_bytes(const ZklOp *ops, int n)
{
	size_t		size = 0;

	for (int i = 0; i < n; i++)
		size += strlen(ops[i].path) + 1 + (ops[i].child ? strlen(ops[i].child) + 1 : 0) +
			(ops[i].data && ops[i].data_len > 0 ? (size_t) ops[i].data_len : 0) + 1;
	return size;
}

/* Copies operations to "to", and what they point to, with whole paths, to "bytes". */
static inline void
zkl_ops_copy(ZklOp *to, const ZklOp *from, int n, char *bytes)
{
	for (int i = 0; i < n; i++)
	{
		to[i] = from[i];
		to[i].path = bytes;
		to[i].child = NULL;
		bytes = stpcpy(bytes, from[i].path);
		if (from[i].child)
			bytes = stpcpy(stpcpy(bytes, "/"), from[i].child);
		bytes++;
		if (from[i].data == NULL)
			continue;
		to[i].data = bytes;
		if (from[i].data_len > 0)
		{
			memcpy(bytes, from[i].data, (size_t) from[i].data_len);
			bytes += from[i].data_len;
		}
		bytes++;
	}
}

/* Returns a hash (FNV-1a) of all bytes so far; begins with ZKL_HASH. */
#define ZKL_HASH UINT64_C(14695981039346656037)
static inline uint64_t
zkl_hash(uint64_t hash, const void *data, size_t length)
{
	const unsigned char *bytes = data;

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
	return hash;
}

#endif							/* ZKL_OPERATION_H */
