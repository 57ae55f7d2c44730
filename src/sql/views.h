/*-------------------------------------------------------------------------
 *
 * views.h
 *		The rows of the views of locks, and of the functions beside them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_VIEWS_H
#define ZKLOCK_VIEWS_H

#include "fmgr.h"

#include "backend/base/names.h"

/*
 * Returns the rows of the lock and of the semaphore of one name, or of all (NULL), as the
 * result of a set-returning function.  Waits and throws like zklock_read_ensemble().
 */
extern Datum zklock_show_locks(FunctionCallInfo fcinfo, const ZklockName *name);

#endif							/* ZKLOCK_VIEWS_H */
