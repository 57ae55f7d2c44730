/*-------------------------------------------------------------------------
 *
 * node.h
 *		Names of lock nodes, their order, and who stands before whom.
 *
 * Pure functions on strings and numbers: no I/O, no allocation, no state, any
 * thread.  Everything that reads names written by other programs is here.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_NODE_H
#define ZKL_NODE_H

#include "recipe.h"

/* prefix, GUID, infix, number, NUL: "_c_" 36 "-__READ__" 11 */
#define ZKL_CHILD_NAME_SIZE 64

/* A child of a lock's znode that takes part in the lock. */
typedef struct ZklContender
{
	int32_t		number;			/* the server's sequence number */
	bool		writer;
	bool		has_owner;		/* the name holds a GUID */
	uint64_t	owner;			/* its first half: for nodes of ours, the session id */
} ZklContender;

/* False if no dialect knows this name.  Never fails on any bytes. */
extern bool zkl_parse_child(const char *name, ZklContender *contender);

/* The first half of the GUID with which a name begins, if it does. */
extern bool zkl_parse_owner(const char *name, uint64_t *owner);

/* Writes the GUID of session and counter, as the dialect begins names; returns its length. */
extern size_t zkl_guid(ZklDialect dialect, int64_t session_id, uint64_t counter,
					   char out[ZKL_CHILD_NAME_SIZE]);

/* Does the dialect have names for the mode? */
extern bool zkl_has_mode(ZklDialect dialect, ZklMode mode);

/*
 * Writes the name to create: prefix, GUID of session and counter, infix, and
 * no number.  Returns false if the dialect has no such mode.
 */
extern bool zkl_child_prefix(ZklDialect dialect, ZklMode mode,
							 int64_t session_id, uint64_t counter,
							 char out[ZKL_CHILD_NAME_SIZE]);

/* The same with a number, as the server would append it. */
extern bool zkl_child_name(ZklDialect dialect, ZklMode mode,
						   int64_t session_id, uint64_t counter,
						   int32_t number, char out[ZKL_CHILD_NAME_SIZE]);

/* Among the children, the one made of the prefix and a number, or NULL. */
extern const char *zkl_find_child(const char *const *children, int n_children,
								  const char *prefix);

/*
 * Does a stand before b?  Serial number arithmetic (RFC 1982), so that the
 * order survives the wrap of the server's signed 32-bit counter; of equal
 * numbers the lesser name is first.
 */
extern bool zkl_is_before(int32_t a_number, const char *a_name,
						  int32_t b_number, const char *b_name);

typedef enum ZklStanding
{
	ZKL_STANDING_FIRST,			/* nobody is in the way: held */
	ZKL_STANDING_BEHIND,		/* the predecessor must leave first */
	ZKL_STANDING_BAR,			/* upgrade: first move up to this waiting writer */
	ZKL_STANDING_GONE,			/* the node is not among the children */
	ZKL_STANDING_DEADLOCK		/* upgrade: another sharer's upgrade is before */
} ZklStanding;

/*
 * Where does the first of "mine" stand?  The others are nodes that the session
 * holds as well below this lock; they never conflict.  A node of the session
 * that is not among them is one it has given up: others will be let in only
 * when that is gone, and so is it.  An upgrade is a writer whose session holds
 * a reader node (see doc/design.md).  "other" is set to the child that BEHIND
 * and BAR speak of; it points into "children".
 */
extern ZklStanding zkl_standing(const char *const *children, int n_children,
								const char *const *mine, int n_mine,
								bool upgrade, const char **other);

/*
 * Whom does a node wait for: the owners of all nodes of other sessions that
 * must go before it stands first.  Nodes without an owner are left out, and an
 * owner may come more than once; "owners" has room for n_children.  Returns how
 * many they are, or -1 if the node is not among the children.
 */
extern int	zkl_blockers(const char *const *children, int n_children,
						 const char *name, bool upgrade, uint64_t *owners);

/* A contender in a queue, seen from outside. */
typedef struct ZklQueued
{
	const char *name;
	ZklContender contender;
	uint32_t	distance;		/* of its number, for the order; set by zkl_sort_queue() */
	bool		granted;
	int			anchor;			/* of an upgrade: index of its session's reader; else -1 */
	void	   *item;			/* the caller's */
} ZklQueued;

/* Puts a queue in order.  Any numbers do, but only those within 2^31 make sense. */
extern void zkl_sort_queue(ZklQueued *queue, int n);

/*
 * Who holds the lock?  Sets "granted" and "anchor" in a queue that is in order.
 * What zkl_standing() says for one, but for nodes of one number: a reader next
 * to a writer of its number is that writer's downgrade, and both hold it.
 */
extern void zkl_grant_queue(ZklQueued *queue, int n);

/*
 * Whose program made the child, as far as the name tells; "session_id" is that
 * of the ephemeral node, or 0.
 */
extern ZklMaker zkl_maker(const char *child, int64_t session_id);

#endif							/* ZKL_NODE_H */
