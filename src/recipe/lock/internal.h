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

/* request.c */
extern void zkl__request_free_locks(ZklRequest *request);
extern void zkl__request_leave_permit(ZklRequest *request);

/* lock.c */
extern ZklLock *zkl__lock_new(ZklSession *session);
extern void zkl__lock_granted(ZklLock *lock, ZklNode *node);
extern void zkl__lock_free(ZklLock *lock);
extern void zkl__lock_lose(ZklLock *lock);
extern void zkl__lock_node_lost(ZklNode *node);

#endif							/* ZKL_LOCK_INTERNAL_H */
