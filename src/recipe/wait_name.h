/*-------------------------------------------------------------------------
 *
 * wait_name.h
 *		Names of the nodes below <root>/waits: who waits for whom.
 *
 * Everything that decides whether there is a deadlock is in the names, so that
 * one list of the children is a picture of all long waits at one moment.
 *
 *	<session>.<wait>.<version>.<w or c>.<needs>.<dependents>.<number>
 *
 * needs: the sessions it waits for, any of several joined by "+", several such
 * by ","; dependents: sessions that wait for this one in the lock manager of
 * their server.  All in hexadecimal, but the server's number.  "c" claims to be
 * the one who gives way.  A "p" before a session: it stands in line behind the
 * other, and takes over what that one waits for if it gives way; see graph.h.
 *
 * Pure functions: no I/O, no state, any thread.  They allocate.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WAIT_NAME_H
#define ZKL_WAIT_NAME_H

#include <stdbool.h>
#include <stdint.h>

#include "graph.h"

/* More is not told: what is left out can only hide a deadlock. */
#define ZKL_WAIT_NAME_MAX 60000

#define ZKL_WAIT_IN_LINE "p"

/* What one session takes in a name, with what stands between two. */
#define ZKL_WAIT_ID_SIZE 17

/* Text that grows; "failed" when memory was exhausted. */
typedef struct ZklText
{
	char	   *text;
	int			length;
	int			size;
	bool		failed;
} ZklText;

extern void zkl_text_add(ZklText *t, const char *format,...)
			__attribute__((format(printf, 2, 3)));

typedef struct ZklWaitNode
{
	const char *name;			/* points into the children */
	uint64_t	session;
	uint64_t	wait;
	bool		claims;
	int32_t		number;
	int			first_need;		/* of its own, in ZklWaitPicture.needs */
	int			n_needs;
	int			n_dependents;	/* whose needs follow */
} ZklWaitNode;

/* All waits that are told; of each session the newest node. */
typedef struct ZklWaitPicture
{
	ZklWaitNode *nodes;
	int			n;
	ZklNeed    *needs;			/* source: index of the node that tells it */
	int			n_needs;
	uint64_t   *ids;			/* what any_of of the needs points to */
	int			n_ids;
} ZklWaitPicture;

/* False if memory is exhausted.  Names that can't be read are left out. */
extern bool zkl_picture_read(const char *const *children, int n_children,
							 ZklWaitPicture *picture);
extern void zkl_picture_free(ZklWaitPicture *picture);

/* The session's node, or NULL. */
extern const ZklWaitNode *zkl_picture_find(const ZklWaitPicture *picture,
										   uint64_t session);

/* Does the name begin as those of this session do? */
extern bool zkl_is_wait_of(const char *name, uint64_t session);

#endif							/* ZKL_WAIT_NAME_H */
