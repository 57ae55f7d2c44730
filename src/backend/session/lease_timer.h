/*-------------------------------------------------------------------------
 *
 * lease_timer.h
 *		Cancels the running statement when the session is not proven in time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_TIMER_H
#define ZKLOCK_LEASE_TIMER_H

#include "recipe/recipe.h"

/* Prepares this backend; does nothing when called again.  Throws 53000. */
extern void zklock_lease_timer_init(void);

/* Called after each grant: watches the deadline of what this session holds. */
extern void zklock_lease_timer_start(ZklSession *session);

/* Called before the session is closed. */
extern void zklock_lease_timer_stop(void);

#endif							/* ZKLOCK_LEASE_TIMER_H */
