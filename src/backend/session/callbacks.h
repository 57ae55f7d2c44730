/*-------------------------------------------------------------------------
 *
 * callbacks.h
 *		The functions that the folders session and lock call in the folders above them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CALLBACKS_H
#define ZKLOCK_CALLBACKS_H

typedef struct ZklockCallbacks
{
	void		(*before_open) (void);	/* before a session opens; may be called repeatedly */
	void		(*in_wait) (void);	/* whenever a waiting backend wakes up; at most a NOTICE */
	void		(*after_grant) (void);	/* after the ensemble granted a lock or permit; does not throw */

	/* Is a command running that a loss must not cancel?  Async-signal-safe. */
	bool		(*is_irreversible) (void);

	/* For ZklSessionConfig. */
	void		(*on_loss_io) (void);
	void		(*on_revoke_io) (void);
} ZklockCallbacks;

/* Set by _PG_init(), then constant. */
extern ZklockCallbacks zklock_callbacks;

#endif							/* ZKLOCK_CALLBACKS_H */
