/*-------------------------------------------------------------------------
 *
 * engine.h
 *		Entering a session: for api.c and request_wait.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ENGINE_H
#define ZKL_ENGINE_H

#include "recipe/semaphore/semaphore.h"

/* Takes the session's mutex, for a moment. */
extern void zkl__enter(ZklSession *session);

/* Advances what is marked, releases the mutex, and sends what was submitted. */
extern void zkl__leave(ZklSession *session);

#endif							/* ZKL_ENGINE_H */
