/*-------------------------------------------------------------------------
 *
 * semaphore.h
 *		Requests for permits of semaphores.
 *
 * From the top to the bottom; a file calls only files below it:
 *
 *		permits.c			all requests for permits of a session
 *		semaphore.c			one request: mutex, capacity, permit node, count
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SEMAPHORE_H
#define ZKL_SEMAPHORE_H

#include "recipe/lock/lock.h"

/* The result of the last count of a semaphore's permits, valid until a change. */
typedef enum ZklSeen
{
	SEEN_NOTHING,				/* has to be counted */
	SEEN_ROOM,
	SEEN_FULL					/* until the watch on permits_path fires */
} ZklSeen;

/*
 * A requested permit.  The request's only node is the mutex node, in the queue of
 * the semaphore's mutex.  The capacity, once known, cannot change while that node
 * exists.
 */
struct ZklPermit
{
	int			capacity;
	char	   *semaphore_path; /* in the same chunk of memory, like the other paths */
	char	   *queue_path;		/* of the mutex */
	char	   *permits_path;	/* permits parent */
	ZklNode    *permit_node;	/* NULL until the mutex is held */
	bool		has_mutex;		/* at the last zkl__on_permit_advance() */
	ZklSeen		seen;
	bool		counts_synced;	/* sync before each list: non-blocking and none free, or reread */
	int			n_excess;		/* non-blocking, failed: so many permit nodes must go */
	uint64_t   *owners;			/* ... of all permits of others, see zkl_permit_owners() */
	int			n_owners;
	bool		has_capacity;	/* the semaphore, the requested one; or its data are no number */
	int			other_capacity;
	ZklCall    *capacity_call;	/* calls in flight */
	ZklCall    *count_call;
	ZklCall    *holder_call;
};

/* permits.c */
extern void zkl__permits_connected(ZklSession *session);
extern void zkl__permits_watched(ZklSession *session, const char *path);

#endif							/* ZKL_SEMAPHORE_H */
