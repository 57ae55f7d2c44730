/*-------------------------------------------------------------------------
 *
 * lifecycle.h
 *		The hooks into PostgreSQL that release locks and report lost ones.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LIFECYCLE_H
#define ZKLOCK_LIFECYCLE_H

/* Called once, from _PG_init(). */
extern void zklock_install_hooks(void);

#endif							/* ZKLOCK_LIFECYCLE_H */
