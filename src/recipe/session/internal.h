/*-------------------------------------------------------------------------
 *
 * internal.h
 *		Declarations shared only by the files of this folder.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSION_INTERNAL_H
#define ZKL_SESSION_INTERNAL_H

#include "session.h"

/* session.c */
extern void zkl__session_end(ZklSession *session, ZklSessionState state);
extern void zkl__drive_all(ZklSession *session);
extern void zkl__parts_drive_timers(ZklSession *session, int64_t now);
extern int64_t zkl__parts_next_timer(const ZklSession *session);

/* calls.c */
extern void zkl__call_free(ZklCall *call);

/* timers.c */
extern void zkl__keepalive_later(const ZklCall *call);
extern void zkl__timers_drive(ZklSession *session);

/* open_parents.c */
extern void zkl__read_acls(ZklSession *session);

#endif							/* ZKL_SESSION_INTERNAL_H */
