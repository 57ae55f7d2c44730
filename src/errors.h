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

/*
 * Raises ERROR for a status that says why a request failed.  "display"
 * names the lock; "raw_code" is the client library's, or 0.
 */
extern _Noreturn void zklock_raise(ZklStatus status, const char *display, int raw_code);

/* No session within zklock.connect_timeout: 08001. */
extern _Noreturn void zklock_raise_no_session(const char *display);

/* What to do about that: in TLS there is more to check. */
extern const char *zklock_no_session_hint(void);

/* The connection went and did not come back within zklock.connect_timeout: 08006. */
extern _Noreturn void zklock_raise_connection_lost(const char *display);

#endif							/* ZKLOCK_ERRORS_H */
