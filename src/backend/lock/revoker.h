/*-------------------------------------------------------------------------
 *
 * revoker.h
 *		Requests the release of a lock from its holders.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REVOKER_H
#define ZKLOCK_REVOKER_H

#include "backend/base/names.h"

/*
 * Requests release from all holders of the lock; returns their number.  Waits and throws like
 * zklock_read_ensemble().  Throws 42501 if the ensemble or the role's rights do not allow some
 * of the requests.
 */
extern int	zklock_revoke(const ZklockName *name);

#endif							/* ZKLOCK_REVOKER_H */
