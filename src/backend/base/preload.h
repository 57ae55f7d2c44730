/*-------------------------------------------------------------------------
 *
 * preload.h
 *		The library must be in shared_preload_libraries.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PRELOAD_H
#define ZKLOCK_PRELOAD_H

/* Set once, in the postmaster. */
extern bool zklock_is_preloaded;

/* Reports, at the given level, that the library is not preloaded. */
extern void zklock_report_not_preloaded(int level);

/* Throws 55000 if the library is not preloaded.  Every function calls this first. */
static inline void
zklock_require_preloaded(void)
{
	if (unlikely(!zklock_is_preloaded))
		zklock_report_not_preloaded(ERROR);
}

#endif							/* ZKLOCK_PRELOAD_H */
