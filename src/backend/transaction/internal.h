/*-------------------------------------------------------------------------
 *
 * internal.h
 *		The table of fences, for the files of this folder.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TRANSACTION_INTERNAL_H
#define ZKLOCK_TRANSACTION_INTERNAL_H

#include "storage/lockdefs.h"
#include "utils/relcache.h"

#define ZKLOCK_FENCES "zklock_fences"

/* The columns, as the extension's script defines them, and the statements' parameters. */
enum
{
	COLUMN_LOCK,
	COLUMN_TOKEN,
	COLUMN_FENCED_AT,
	COLUMN_FENCED_BY,
	N_COLUMNS
};

extern Oid	zklock_fences_types[N_COLUMNS];

/*
 * Opens the table of the extension that a function belongs to.  Throws if there is none, or if its
 * columns or triggers have been changed.
 */
extern Relation zklock_open_fences(Oid function, LOCKMODE mode);

/* The same checks, for a trigger on the table that calls the function. */
extern void zklock_check_fences(Relation fences, Oid function);

#endif							/* ZKLOCK_TRANSACTION_INTERNAL_H */
