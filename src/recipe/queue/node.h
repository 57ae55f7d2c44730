/*-------------------------------------------------------------------------
 *
 * node.h
 *		Names of lock nodes, their order, and a node's position in a queue.
 *
 * Pure functions on strings and numbers: no I/O, no state, any thread; some
 * allocate memory.  All names of contenders are parsed here, including those of other
 * programs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_NODE_H
#define ZKL_NODE_H

#include "recipe/batch.h"

/* prefix, GUID, infix, number, NUL: "_c_" 36 "-__READ__" 11 */
#define ZKL_CHILD_NAME_SIZE 64

/* A child of a lock's znode that takes part in the lock. */
typedef struct ZklContender
{
	int32_t		number;			/* the server's sequence number */
	bool		writer;
	bool		has_owner;		/* the name contains a GUID */
	bool		has_our_form;	/* ... with dashes behind "_c_", or without them in kazoo's form */
	uint64_t	owner;			/* first half of the GUID; in zklock's names the session id */
	uint64_t	guid_end;		/* second half, in zklock's names zkl_guid_end(); 0 without a GUID */
} ZklContender;

/* Returns false if the name follows none of the known schemes.  Any bytes are safe. */
extern bool zkl_parse_child(const char *name, ZklContender *contender);

/* Reads the GUID that a name begins with; returns its end.  NULL, and zeros, if there is none. */
extern const char *zkl_parse_guid(const char *name, uint64_t *owner, uint64_t *guid_end);

/*
 * Returns the second half of a GUID.  A tag of 0 is the form without a server tag.  The GUIDs
 * of Curator and kazoo are random UUIDs, whose second half begins with the bits 10; no tag has
 * the first of these bits (ZKL_MAX_SERVER_TAG).  go-zookeeper's are 16 random bytes, which only
 * their form tells from ours.
 */
extern uint64_t zkl_guid_end(uint32_t tag, uint32_t counter);

/* Returns whether the name is one that zklock gives, and not another program's. */
extern bool zkl_is_zklocks(const ZklContender *contender);

/*
 * Kept locks.  The node of a single lock may be kept by its session when the lock is
 * released: until another session asks for it.  Name and data say so from the create.  The
 * bit in the name spares contenders the read of all other nodes; the last word of the data
 * proves it.  The word goes forward only:
 *
 *		may		the session may keep it
 *		ask		a contender has asked
 *		use		the owner's answer: in use, to be deleted when it is released
 */
#define ZKL_KEEP_WORD " keep=may"
#define ZKL_KEEP_LENGTH ((int) sizeof(ZKL_KEEP_WORD) - 1)

typedef enum ZklKeepState
{
	ZKL_KEEP_NEVER,
	ZKL_KEEP_MAY,
	ZKL_KEEP_ASKED,
	ZKL_KEEP_IN_USE
} ZklKeepState;

/* In the counter of zkl_guid_end(): the node may be kept. */
#define ZKL_KEEP_BIT UINT32_C(0x80000000)

/* Returns whether the second half of a GUID, in a name that is zklock's, has the bit. */
static inline bool
zkl_has_keep_bit(uint64_t guid_end)
{
	return (guid_end & ZKL_KEEP_BIT) != 0;
}

/* Returns whether the name says that its session may keep the node. */
extern bool zkl_may_be_kept(const ZklContender *contender);

/* Returns what the last word of a node's data, any bytes, says. */
extern ZklKeepState zkl_parse_keep(const char *data, int data_len);

/* Replaces that word, in place. */
extern void zkl_set_keep(char *data, int data_len, ZklKeepState state);

/* Returns whether the scheme has names for the mode. */
extern bool zkl_has_mode(ZklNodeNames node_names, ZklMode mode);

/*
 * Writes the name to create, without the number: prefix, GUID of session id and
 * zkl_guid_end(), infix.  Returns false if the scheme has no names for the mode.
 */
extern bool zkl_child_prefix(ZklNodeNames node_names, ZklMode mode,
							 int64_t session_id, uint64_t guid_end,
							 char out[ZKL_CHILD_NAME_SIZE]);

/* The same with the number, as the server appends it. */
extern bool zkl_child_name(ZklNodeNames node_names, ZklMode mode,
						   int64_t session_id, uint64_t guid_end,
						   int32_t number, char out[ZKL_CHILD_NAME_SIZE]);

/* Writes the name of a permit node up to the number. */
extern void zkl_permit_prefix(int64_t session_id, uint64_t guid_end,
							  char out[ZKL_CHILD_NAME_SIZE]);

/* Returns the child whose name is the prefix, perhaps with a number, or NULL. */
extern const char *zkl_find_child(const char *const *children, int n_children,
								  const char *prefix);

/*
 * Returns whether a comes before b.  Serial number arithmetic (RFC 1982) keeps the
 * order when the server's signed 32-bit counter wraps.  Nodes of equal number are
 * in the order of their names.
 */
extern bool zkl_is_before(int32_t a_number, const char *a_name,
						  int32_t b_number, const char *b_name);

typedef enum ZklPosition
{
	ZKL_POSITION_FIRST,			/* no predecessor: held */
	ZKL_POSITION_WAITS,			/* the predecessor must leave first */
	ZKL_POSITION_MOVE_UP,		/* upgrade: first move up to a waiting writer */
	ZKL_POSITION_GONE,			/* the node is not among the children */
	ZKL_POSITION_DEADLOCK,		/* upgrade: another sharer's upgrade comes before */
	ZKL_POSITION_NO_ANCHOR,		/* upgrade: the reader node that it builds on is not among the children */
	ZKL_POSITION_NO_MEMORY
} ZklPosition;

/*
 * Returns the position of mine[0].  The rest of "mine" are nodes that the session
 * holds below this lock; they never conflict.  Any other node of the session is a
 * pending delete and counts like a foreign one: while it exists, it keeps other
 * sessions from the lock, and so it does this one, except where list_elision.c grants the
 * next number.  An upgrade is a writer whose
 * session holds a reader node (see doc/design.md).  "other", which points into
 * "children", is set for WAITS to the predecessor, for MOVE_UP to the waiting
 * writer, and for DEADLOCK to the other sharer's reader.
 */
extern ZklPosition zkl_position(const char *const *children, int n_children,
								const char *const *mine, int n_mine,
								bool is_upgrade, const char **other);

/* A contender in a queue, of any session. */
typedef struct ZklQueued
{
	const char *name;
	ZklContender contender;
	uint32_t	distance;		/* of its number, as a sort key; set by zkl_sort_queue() */
	bool		granted;
	int			anchor;			/* upgrade: index of its session's reader; else -1 */
	int			index;			/* among the children, for zkl_order_queue() */
	void	   *item;			/* for the caller */
} ZklQueued;

/* Sorts a queue.  Meaningful only for numbers within 2^31 of each other. */
extern void zkl_sort_queue(ZklQueued *queue, int n);

/* The order of a sorted queue, for bsearch(). */
extern int	zkl_compare_queued(const void *a, const void *b);

/*
 * Sets "granted" and "anchor" in a sorted queue.  Agrees with zkl_position() for each
 * node, except for nodes of equal number: a reader next to a writer of its number
 * is that writer's downgrade, and both hold the lock.
 */
extern void zkl_grant_queue(ZklQueued *queue, int n);

/*
 * Semaphores have the layout of Curator's InterProcessSemaphoreV2:
 *
 *		<semaphore>			the capacity, as a decimal number
 *		<semaphore>/locks	the queue of the mutex
 *		<semaphore>/leases	the permits parent; ephemeral sequential nodes
 */
#define ZKL_PERMITS_QUEUE "locks"
#define ZKL_PERMITS "leases"

#endif							/* ZKL_NODE_H */
