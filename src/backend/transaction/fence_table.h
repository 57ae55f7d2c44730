/*-------------------------------------------------------------------------
 *
 * fence_table.h
 *		The table zklock_fences: the greatest token recorded for each lock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FENCE_TABLE_H
#define ZKLOCK_FENCE_TABLE_H

#include "datatype/timestamp.h"
#include "storage/lockdefs.h"
#include "utils/relcache.h"

#include "backend/base/names.h"

/*
 * Opens the table of the extension that "function" belongs to.  Raises 42P01 if the table
 * is not in the schema of that function.
 */
extern Relation zklock_fences_open(Oid function, LOCKMODE mode);

/*
 * Locks a name until the end of the transaction.  ExclusiveLock excludes all other
 * transactions that fence the name, ShareLock only those of exclusive holders.
 */
extern void zklock_fences_lock_name(const char *encoded, LOCKMODE mode);

/* Returns the recorded token, or 0. */
extern int64 zklock_fences_token(Relation fences, const char *encoded);

/*
 * Records a token unless a greater one is recorded; returns the recorded token.  The
 * caller has locked the name exclusively.
 */
extern int64 zklock_fences_record(Relation fences, const char *encoded, int64 token);

/* Removes the row of a lock, if any.  The caller has locked the name exclusively. */
extern void zklock_fences_remove(Relation fences, const char *encoded);

/*
 * Removes the rows recorded up to "until".  Skips rows that another transaction has
 * locked, without waiting.  Returns the number of rows removed.
 */
extern int64 zklock_fences_remove_until(Relation fences, TimestampTz until);

#endif							/* ZKLOCK_FENCE_TABLE_H */
