/*-------------------------------------------------------------------------
 *
 * lifecycle.h
 *		When locks end: the hooks into PostgreSQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LIFECYCLE_H
#define ZKLOCK_LIFECYCLE_H

/* Called once, from _PG_init. */
extern void zklock_install_hooks(void);

/*
 * Makes the end of this process close the ZooKeeper session.  Called before
 * the first one is opened: what is registered in a preloaded library's
 * _PG_init is lost at fork.
 */
extern void zklock_register_exit(void);

#endif							/* ZKLOCK_LIFECYCLE_H */
