/*-------------------------------------------------------------------------
 *
 * fake_tree.h
 *		An in-memory ZooKeeper: its znodes, without sessions' connections.
 *
 * One per process.  Not thread-safe: fake_client.c locks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FAKE_TREE_H
#define FAKE_TREE_H

#include "recipe/zookeeper/client.h"

typedef struct FakeNode
{
	struct FakeNode *next;
	char	   *path;
	char	   *data;
	int			data_len;
	int64_t		owner;			/* session of an ephemeral node, or 0 */
	int64_t		czxid;
	int64_t		since;			/* the transaction that created it or set its data */
	int64_t		until;			/* ... and that ended this state; 0: none yet */
	bool		replaced;		/* ended by new data, else by a delete */
	int32_t		counter;		/* the number of the next sequential child */
	int32_t		version;		/* of the data */
	bool		container;
} FakeNode;

/* How this ZooKeeper misbehaves. */
typedef struct FakeQuirks
{
	bool		no_chroot;		/* top-level nodes have no parent */
	const char *deny;			/* create and delete at or below this path: NO_AUTH */
	bool		deny_breaks;	/* ... OTHER instead */
	const char *deny_exactly;	/* create of exactly this path: NO_AUTH */
	const char *deny_read;		/* get and list of exactly this path: NO_AUTH */
	int			unknown_creates;	/* so many multis that create: the leader knows no such session */
	int			unknown_checks; /* ... that check */
} FakeQuirks;

extern FakeQuirks fake_quirks;

/* Called after each transaction; set by fake_client.c. */
extern void (*fake_tree_changed) (void);

/* Resets everything, quirks too; transaction ids continue. */
extern void fake_tree_reset(void);

extern FakeNode *fake_tree_find(const char *path);
extern FakeNode *fake_tree_first(void);

/* Returns the last transaction. */
extern int64_t fake_tree_zxid(void);

/*
 * The tree as it was after a transaction, as a server that lags behind the leader
 * shows it.  fake_tree_next_at() takes NULL for the first node.
 */
extern FakeNode *fake_tree_find_at(const char *path, int64_t zxid);
extern FakeNode *fake_tree_next_at(FakeNode *node, int64_t zxid);

/*
 * Did the transactions after "from" and up to "to" delete or change the node, or,
 * with "children", add or delete one of its children, or delete the node itself?
 */
extern bool fake_tree_touched(const char *path, bool children, int64_t from, int64_t to);

/* Returns the child's name if path is a child of parent, else NULL. */
extern const char *fake_tree_child(const char *path, const char *parent);

/* For a create: the path created, which the caller frees. */
extern ZklResultCode fake_tree_create(const char *path, const char *data,
									  int data_len, ZklCreateKind kind,
									  int64_t session, char **made,
									  int64_t *czxid);

/* When the node was created, by a clock that advances with the transactions. */
extern int64_t fake_tree_ctime_ms(const FakeNode *node);

extern ZklResultCode fake_tree_delete(const char *path);
extern ZklResultCode fake_tree_set(const char *path, const char *data);

/* The same if the data have this version. */
extern ZklResultCode fake_tree_set_if(const char *path, const char *data,
									  int data_len, int32_t version);

/*
 * All or nothing.  Sets codes as a server does: OK before the operation that
 * failed, ROLLED_BACK after it.
 */
extern ZklResultCode fake_tree_multi(const ZklOp *ops, int n, int64_t session,
									 ZklResultCode *codes, char **paths);

/* Called after each one that has succeeded; or NULL. */
extern void (*fake_tree_after_multi) (void);

/* Deletes a session's ephemeral nodes. */
extern void fake_tree_end_session(int64_t session);

/* What the server does once a minute: deletes used containers without children. */
extern void fake_tree_reap(void);

#endif							/* FAKE_TREE_H */
