/*-------------------------------------------------------------------------
 *
 * irreversible.h
 *		Commands that cannot be undone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_IRREVERSIBLE_H
#define ZKLOCK_IRREVERSIBLE_H

#include "nodes/nodes.h"

/*
 * Called before a utility command runs.  If a rollback might not undo the command, checks
 * the locks as a commit does: may wait, and throws.  Returns whether the caller must call
 * zklock_irreversible_finished() after the command has succeeded.
 */
extern bool zklock_irreversible_start(Node *command, bool is_top_level);

/* The functions below neither throw nor wait. */

extern void zklock_irreversible_finished(void);

/*
 * At PRE_COMMIT: returns whether the commit belongs to a command that cannot be undone.
 * Such a commit must not be refused.
 */
extern bool zklock_irreversible_commits(void);

/*
 * Called at the start of a statement and at the end of a transaction.  From then on
 * commits do not belong to the command, unless the command is still running.
 */
extern void zklock_irreversible_forget(void);

/* Does such a command run or commit?  Then no loss cancels it.  Async-signal-safe. */
extern bool zklock_irreversible_runs(void);

#endif							/* ZKLOCK_IRREVERSIBLE_H */
