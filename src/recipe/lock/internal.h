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
 * Half of a server's default packet limit (jute.maxbuffer).  Bounds the paths of a
 * session's nodes, which the server writes into one closing transaction, and the
 * paths and data of one multi.
 */
#define ZKL_PACKET_BYTES 500000

/* requests.c */
extern void zkl__request_on_idle(void *subject);

/* request.c */
extern void zkl__request_inform_of_end(ZklRequest *request);
extern void zkl__request_created(ZklRequest *request);
extern void zkl__request_free_ungranted(ZklRequest *request);

/* parents.c */
extern void zkl__request_below_locks(ZklRequest *request);

/* grant.c */
extern void zkl__request_check_granted(ZklRequest *request);

/* sequence_restart.c */
extern bool zkl__request_restart_sequence(ZklRequest *request);
extern void zkl__sequence_restart_drive(ZklRequest *request);
extern void zkl__sequence_restart_watch_fired(ZklRequest *request, const char *path);

/* lock.c */
extern void zkl__lock_link(ZklLock *lock);
extern void zkl__lock_reduce(ZklLock *lock, ZklMode mode);
extern void zkl__lock_node_lost(ZklNode *node);
extern void zkl__lock_lose(ZklLock *lock);
extern void zkl__notify_loss(const ZklSession *session);
extern void zkl__notify_revocation(const ZklSession *session);
extern void zkl__confirm_drive(ZklSession *session);

/* hold_watch.c */
extern void zkl__hold_watch_later(ZklNode *node);

/* refusal.c */
extern void zkl__refusal_info(const ZklRequest *request, ZklRequestInfo *info);

#endif							/* ZKL_LOCK_INTERNAL_H */
