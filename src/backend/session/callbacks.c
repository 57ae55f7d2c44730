/*-------------------------------------------------------------------------
 *
 * callbacks.c
 *		The functions that the folders session and lock call in the folders above them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/session/callbacks.h"

ZklockCallbacks zklock_callbacks;
