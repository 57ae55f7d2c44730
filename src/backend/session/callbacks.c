/*-------------------------------------------------------------------------
 *
 * callbacks.c
 *		What the session folder calls in the folders above it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/session/callbacks.h"

ZklockCallbacks zklock_callbacks;
