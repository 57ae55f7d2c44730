/*-------------------------------------------------------------------------
 *
 * errors.h
 *		Translates a status of the recipe layer into an error of PostgreSQL (errors.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ERRORS_H
#define ZKLOCK_ERRORS_H

#include "recipe/recipe.h"


/* The error context of a call: messages say "could not <action>". */
typedef struct ZklockAction
{
	const char *format;			/* for psprintf(); may use "display" */
	const char *display;		/* name of the lock or semaphore */
} ZklockAction;

#define ZKLOCK_ACTION_LOCK(name) \
	((ZklockAction) {.format = "lock \"%s\"", .display = (name)})
#define ZKLOCK_ACTION_PERMIT(name) \
	((ZklockAction) {.format = "acquire a permit of semaphore \"%s\"", .display = (name)})

/*
 * An ErrorContextCallback.  The errors of PostgreSQL that end a wait do not name the lock;
 * their context does.
 */
extern void zklock_name_action(void *action);

/* Why an action failed. */
typedef struct ZklockProblem
{
	int			sqlstate;		/* 0: no problem */
	const char *reason;
	const char *hint;
	const char *detail;			/* or NULL */
} ZklockProblem;

/* Returns the problem for a status; "raw_code" is the client library's code, or 0. */
extern ZklockProblem zklock_problem_of(ZklStatus status, int raw_code);

/* No session within this time, perhaps because of TLS: 08001. */
extern ZklockProblem zklock_no_session(bool failed_at_tls, int64 waited_ms);

/* No answer in the session within this time: 08006. */
extern ZklockProblem zklock_no_answer(ZklSession *session, int64 waited_ms);

/* Only for calls that read the queues (znodes.c). */
extern const ZklockProblem zklock_session_expired;
extern const ZklockProblem zklock_too_many_znodes;

extern _Noreturn void zklock_fail(const ZklockAction *action, ZklockProblem problem);

/* For ZKL_DEADLOCK.  "rival" is the data of the other session's node, or "". */
extern _Noreturn void zklock_raise_upgrade_deadlock(const ZklockAction *action,
													const char *rival);

/* Raises an ERROR for the status of a failed request. */
extern _Noreturn void zklock_raise(ZklStatus status, const ZklockAction *action,
								   int raw_code);

#endif							/* ZKLOCK_ERRORS_H */
