/*-------------------------------------------------------------------------
 *
 * internal.h
 *		Declarations shared by the files of this folder only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LOCK_INTERNAL_H
#define ZKL_LOCK_INTERNAL_H

#include "lock.h"

/*
 * A lock that the session holds, or that a pending request will hold.  The anchor is its
 * first node and exists until the lock is released; the anchor's czxid is the token.
 */
struct ZklLock
{
	ZklSession *session;
	ZklLock    *prev;			/* in the list of lock.c, once granted */
	ZklLock    *next;
	bool		taken;			/* by the owner, from its request */
	bool		lost;
	int			revocations;
	int64_t		token;
	ZklNode    *anchor;
	ZklNode    *base;			/* the anchor, unless the lock is lost: upgrades build on it */
	ZklNode    *upgrade;		/* the writer node next to a reader anchor, or NULL */
};

/* request.c */
extern void zkl__request_free_locks(ZklRequest *request);
extern void zkl__request_leave_permit(ZklRequest *request);

/* lock.c */
extern ZklLock *zkl__lock_new(ZklSession *session);
extern void zkl__lock_granted(ZklLock *lock, ZklNode *node);
extern void zkl__lock_reduce(ZklLock *lock, ZklMode mode);
extern void zkl__lock_free(ZklLock *lock);
extern void zkl__lock_lose(ZklLock *lock);
extern void zkl__lock_node_lost(ZklNode *node);

#endif							/* ZKL_LOCK_INTERNAL_H */
