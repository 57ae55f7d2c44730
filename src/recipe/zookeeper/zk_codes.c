/*-------------------------------------------------------------------------
 *
 * zk_codes.c
 *		Translates the client library's codes to those of client.h and back.
 *
 *-------------------------------------------------------------------------
 */
#include "zk_library.h"

/* A code of the server that the library's header of 3.8 does not define. */
#define QUOTA_EXCEEDED (-125)


ZklResultCode
zkl_zk_code(int rc)
{
	switch (rc)
	{
		case ZOK:
			return ZKL_RC_OK;
		case ZCONNECTIONLOSS:
		case ZOPERATIONTIMEOUT:
		case ZRUNTIMEINCONSISTENCY: /* an answer is missing: the library reconnects */
		case ZSESSIONMOVED:		/* the connection will be closed */
		case ZTHROTTLEDOP:		/* not done; can be retried */
			return ZKL_RC_CONNECTION_LOSS;
		case ZNONODE:
			return ZKL_RC_NO_NODE;
		case ZNODEEXISTS:
			return ZKL_RC_NODE_EXISTS;
		case ZNOTEMPTY:
			return ZKL_RC_NOT_EMPTY;
		case ZBADVERSION:
			return ZKL_RC_BAD_VERSION;
		case ZNOAUTH:
		case ZINVALIDACL:
			return ZKL_RC_NO_AUTH;
		case ZAUTHFAILED:
		case ZSESSIONCLOSEDREQUIRESASLAUTH:
			return ZKL_RC_AUTH_FAILED;
		case ZSESSIONEXPIRED:
		case ZCLOSING:
		case ZINVALIDSTATE:
			return ZKL_RC_SESSION_EXPIRED;
		case ZUNIMPLEMENTED:
			return ZKL_RC_UNIMPLEMENTED;

			/*
			 * The leader's PrepRequestProcessor checks a request before it
			 * makes a transaction of it; a read-only server, and one with an
			 * exhausted quota, refuse the request before that.
			 */
		case ZBADARGUMENTS:
		case ZNOCHILDRENFOREPHEMERALS:
		case ZEPHEMERALONLOCALSESSION:
		case ZNOTREADONLY:
		case QUOTA_EXCEEDED:
			return ZKL_RC_REFUSED;
		default:
			return ZKL_RC_OTHER;
	}
}


void
zkl_zk_answer_io(const void *completion, ZklResult *result, int rc)
{
	ZklCompletion *c = (ZklCompletion *) completion;

	result->code = zkl_zk_code(rc);
	result->raw_code = rc;
	c->done_io(c, result);
}

int
zkl_zk_create_mode(ZklCreateKind kind)
{
	switch (kind)
	{
		case ZKL_CREATE_CONTAINER:
			return ZOO_CONTAINER;
		case ZKL_CREATE_EPHEMERAL:
			return ZOO_EPHEMERAL;
		case ZKL_CREATE_EPHEMERAL_SEQUENTIAL:
			return ZOO_EPHEMERAL_SEQUENTIAL;
		case ZKL_CREATE_PERSISTENT:
			break;
	}
	return ZOO_PERSISTENT;
}
