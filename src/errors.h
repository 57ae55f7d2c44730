/*-------------------------------------------------------------------------
 *
 * errors.h
 *		From a status of the recipe layer to an error of PostgreSQL's.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ERRORS_H
#define ZKLOCK_ERRORS_H

#include "recipe/recipe.h"

/* What a call is for: errors say "could not <purpose>". */
typedef struct ZklockPurpose
{
	const char *format;			/* of "display", which it may leave out */
	const char *display;		/* the name of the lock or the semaphore */
} ZklockPurpose;

#define ZKLOCK_PURPOSE_LOCK(display) \
	((ZklockPurpose) {"lock \"%s\"", (display)})
#define ZKLOCK_PURPOSE_PERMIT(display) \
	((ZklockPurpose) {"acquire a permit of semaphore \"%s\"", (display)})

/* Why that is not possible. */
typedef struct ZklockProblem
{
	int			sqlstate;		/* 0: it is */
	const char *reason;
	const char *hint;
	const char *detail;			/* or NULL */
} ZklockProblem;

/* What a status tells of; "raw_code" is the client library's, or 0. */
extern ZklockProblem zklock_problem_of(ZklStatus status, int raw_code);

/* No session within zklock.connect_timeout: 08001. */
extern ZklockProblem zklock_no_session(void);

/* The connection went and did not come back within zklock.connect_timeout: 08006. */
extern ZklockProblem zklock_connection_lost(void);

/* What only those meet who read the ensemble. */
extern const ZklockProblem zklock_session_over;
extern const ZklockProblem zklock_too_many_znodes;

/* Reports it as a WARNING or an ERROR. */
extern void zklock_report(int level, const ZklockPurpose *purpose,
						  const ZklockProblem *problem);

extern _Noreturn void zklock_fail(const ZklockPurpose *purpose, ZklockProblem problem);

/* Raises ERROR for a status that says why a request failed. */
extern _Noreturn void zklock_raise(ZklStatus status, const ZklockPurpose *purpose,
								   int raw_code);

#endif							/* ZKLOCK_ERRORS_H */
