/*-------------------------------------------------------------------------
 *
 * node_names.h
 *		Names of lock nodes: writing them, and what those of all programs say.
 *
 * Pure functions on strings and numbers: no I/O, no state, any thread.  All names of
 * contenders are parsed here.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_NODE_NAMES_H
#define ZKL_NODE_NAMES_H

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

/*
 * In the counter, too: the writer's node of an upgrade that waits while it holds the lock shared.
 * Two of them are a deadlock.  A reader and a writer of one session are not always an upgrade: it may
 * be an attempt, the reader may be given up, and other programs may hold both.
 */
#define ZKL_UPGRADE_BIT UINT32_C(0x40000000)

/* Returns whether the second half of a GUID, in a name that is zklock's, has the bit. */
static inline bool
zkl_has_keep_bit(uint64_t guid_end)
{
	return (guid_end & ZKL_KEEP_BIT) != 0;
}

/* Returns whether the name says that its session may keep the node. */
extern bool zkl_may_be_kept(const ZklContender *contender);

/* Returns whether the name has ZKL_UPGRADE_BIT. */
extern bool zkl_is_upgrade(const ZklContender *contender);

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
 * Semaphores have the layout of Curator's InterProcessSemaphoreV2:
 *
 *		<semaphore>			the capacity, as a decimal number
 *		<semaphore>/locks	the queue of the mutex
 *		<semaphore>/leases	the permits parent; ephemeral sequential nodes
 */
#define ZKL_PERMITS_QUEUE "locks"
#define ZKL_PERMITS "leases"

#endif							/* ZKL_NODE_NAMES_H */
