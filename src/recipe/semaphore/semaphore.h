/*-------------------------------------------------------------------------
 *
 * semaphore.h
 *		Requests for permits of semaphores.
 *
 * From the top to the bottom; a file calls only files below it:
 *
 *		check_permit.c		asserts what the phases promise, in builds with ZKL_CHECKS
 *		permit_api.c		requests for their owner, and the events of the session
 *		permit.c			one request: mutex, capacity, permit node, count
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
 * A requested permit.  The request's nodes[0] is the mutex node, in the queue of
 * the semaphore's mutex.  The permit node is its permit_node, until it replaces the other at the
 * grant.  The capacity is read once.
 *
 * The phases of a request that is PENDING (check_permit.c asserts them):
 *
 *						has_capacity	has_mutex	permit_node			seen
 *		queued			maybe			no			NULL				NOTHING; of an attempt, any
 *		has the mutex	yes				yes			NULL, or not HELD	NOTHING; of an attempt, any
 *		counts			yes				yes			LISTING				NOTHING, or ROOM: waits for a proof
 *		waits			yes				yes			LISTING				FULL
 *
 * A request that is_restarted is queued as soon as it is advanced.  The capacity is read while
 * the request is queued, and an attempt counts then, too: so no phase is a field of its own.
 */
struct ZklPermit
{
	int			capacity;
	char		capacity_text[16];	/* the data of the semaphore's znode */
	char	   *semaphore_path; /* in the same chunk of memory, like the other paths */
	char	   *queue_path;		/* of the mutex */
	char	   *permits_path;	/* permits parent */
	bool		has_mutex;		/* at the last zkl__permit_advance() */
	ZklSeen		seen;
	bool		counts_synced;	/* sync before each list: non-blocking and none free, or reread */
	bool		has_capacity;	/* the semaphore, the requested one; or its data are no number */
	int			other_capacity;
	ZklCall    *capacity_call;	/* calls in flight */
	ZklCall    *count_call;
};

/* permit.c */
extern void zkl__permit_advance(ZklRequest *request);

/* check_permit.c */
extern void zkl__check_permit(const ZklRequest *request);
extern void zkl__check_permits(const ZklSession *session);

/* permit_api.c */
extern ZklRequest *zkl__permit_request(ZklSession *session, const char *name, int capacity,
									   bool non_blocking, const char *data, int data_len);
extern void zkl__permit_info(const ZklRequest *request, ZklRequestInfo *info);
extern void zkl__permit_look_again(ZklRequest *request);
extern void zkl__permits_connected(ZklSession *session);
extern void zkl__permits_watched(ZklSession *session, const char *path);

#endif							/* ZKL_SEMAPHORE_H */
