/*-------------------------------------------------------------------------
 *
 * hooks.h
 *		The hooks into PostgreSQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HOOKS_H
#define ZKLOCK_HOOKS_H

/*
 * The hooks into PostgreSQL that release locks and report lost ones (hooks.c)
 */

/* Called once, from _PG_init(). */
extern void zklock_install_hooks(void);

#endif							/* ZKLOCK_HOOKS_H */
