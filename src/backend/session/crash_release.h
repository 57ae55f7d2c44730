/*-------------------------------------------------------------------------
 *
 * crash_release.h
 *		A background worker closes the sessions that a crash has left.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CRASH_RELEASE_H
#define ZKLOCK_CRASH_RELEASE_H

/* In _PG_init(). */
extern void zklock_register_crash_release(void);

#endif							/* ZKLOCK_CRASH_RELEASE_H */
