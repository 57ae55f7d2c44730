/*-------------------------------------------------------------------------
 *
 * codes.c
 *		Interprets the client's result codes for the recipes.
 *
 * Pure functions.
 *
 *-------------------------------------------------------------------------
 */
#include "internal.h"

ZklStatus
zkl__status_of(ZklResultCode code)
{
	switch (code)
	{
		case ZKL_RC_OK:
			return ZKL_OK;
		case ZKL_RC_NO_AUTH:
			return ZKL_NO_AUTH;
		case ZKL_RC_AUTH_FAILED:
			return ZKL_AUTH_FAILED;
		case ZKL_RC_SESSION_EXPIRED:
			return ZKL_SESSION_LOST;
		case ZKL_RC_CONNECTION_LOSS:
		case ZKL_RC_NO_NODE:
		case ZKL_RC_NODE_EXISTS:
		case ZKL_RC_NOT_EMPTY:
		case ZKL_RC_BAD_VERSION:
		case ZKL_RC_UNIMPLEMENTED:
		case ZKL_RC_ROLLED_BACK:
		case ZKL_RC_REFUSED:
		case ZKL_RC_OTHER:
			break;
	}
	return ZKL_SERVER_ERROR;
}

/*
 * Returns whether it is certain that a create, or a multi with one, with this answer
 * has created no node.  All other codes leave that open, and the node is looked for.
 * NODE_EXISTS is one of them: a node of that name is ours, from an earlier create.
 */
bool
zkl__is_refusal(ZklResultCode code)
{
	switch (code)
	{
		case ZKL_RC_NO_NODE:
		case ZKL_RC_NOT_EMPTY:
		case ZKL_RC_BAD_VERSION:
		case ZKL_RC_NO_AUTH:
		case ZKL_RC_UNIMPLEMENTED:
		case ZKL_RC_ROLLED_BACK:
		case ZKL_RC_REFUSED:
			return true;
		case ZKL_RC_OK:
		case ZKL_RC_CONNECTION_LOSS:
		case ZKL_RC_NODE_EXISTS:
		case ZKL_RC_AUTH_FAILED:
		case ZKL_RC_SESSION_EXPIRED:
		case ZKL_RC_OTHER:
			break;
	}
	return false;
}
