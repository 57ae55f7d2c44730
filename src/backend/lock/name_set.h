/*-------------------------------------------------------------------------
 *
 * name_set.h
 *		The distinct names of a call that locks several.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NAME_SET_H
#define ZKLOCK_NAME_SET_H

#include "backend/base/names.h"

/*
 * Returns the names without repetitions, in the order in which local locks are acquired;
 * *n is their number.  Raises 53400 at the first name that exceeds what this session can
 * hold in this mode, without reading further.  Allocates in the current memory context.
 */
extern const ZklockName *zklock_names_to_lock(ZklockNames *names, ZklMode mode,
											  int *n);

#endif							/* ZKLOCK_NAME_SET_H */
