/*-------------------------------------------------------------------------
 *
 * fake_tree.h
 *		A ZooKeeper in memory: its znodes, without sessions' connections.
 *
 * There is one per process.  Not safe for threads: fake_client.c locks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FAKE_TREE_H
#define FAKE_TREE_H

#include "client.h"

typedef struct FakeNode
{
	struct FakeNode *next;
	char	   *path;
	char	   *data;
	int			data_len;
	int64_t		owner;			/* session of an ephemeral node, or 0 */
	int64_t		czxid;
	int32_t		counter;		/* number that the next sequential child gets */
	int32_t		version;		/* of the data */
	bool		container;
} FakeNode;

/* How this ZooKeeper misbehaves. */
typedef struct FakeQuirks
{
	bool		no_containers;	/* an old server: UNIMPLEMENTED */
	bool		no_chroot;		/* top-level nodes have no parent */
	const char *deny;			/* create and delete at or below this path: NO_AUTH */
	const char *deny_exactly;	/* create of this path alone: NO_AUTH */
	const char *deny_read;		/* get and list of this path alone: NO_AUTH */
} FakeQuirks;

extern FakeQuirks fake_quirks;

/* Called for each node deleted or changed; set by fake_client.c. */
extern void (*fake_tree_changed) (const char *path);

/* Called for each node whose children came or went. */
extern void (*fake_tree_children_changed) (const char *path);

/* Forgets everything, quirks too; transaction ids go on. */
extern void fake_tree_reset(void);

extern FakeNode *fake_tree_find(const char *path);
extern FakeNode *fake_tree_first(void);

/* Is this the path of a child of that one?  Returns the child's name, or NULL. */
extern const char *fake_tree_child(const char *path, const char *parent);

/* For a create: the path made, to be freed by the caller. */
extern ZklResultCode fake_tree_create(const char *path, const char *data,
									  int data_len, ZklCreateKind kind,
									  int64_t session, char **made,
									  int64_t *czxid);

/* When the node was made, by a clock that goes with the transactions. */
extern int64_t fake_tree_ctime_ms(const FakeNode *node);

extern ZklResultCode fake_tree_delete(const char *path);
extern ZklResultCode fake_tree_set(const char *path, const char *data);

/* The same if the data have this version. */
extern ZklResultCode fake_tree_set_if(const char *path, const char *data,
									  int data_len, int32_t version);

/*
 * All or nothing.  codes as a server sets them: OK before the operation that
 * failed, ROLLED_BACK after it.
 */
extern ZklResultCode fake_tree_multi(const ZklOp *ops, int n, int64_t session,
									 ZklResultCode *codes, char **paths);

/* Deletes a session's ephemeral nodes. */
extern void fake_tree_end_session(int64_t session);

/* What the server does once a minute: removes used containers without children. */
extern void fake_tree_reap(void);

#endif							/* FAKE_TREE_H */
