/*-------------------------------------------------------------------------
 *
 * session_state.c
 *		What the layers above know of a session, and keep about it.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Returns the state of a part, which lives as long as the session. */
void *
zkl__state(const ZklSession *session, ZklPartId part)
{
	return session->states[part];
}

const ZklConfig *
zkl__config(const ZklSession *session)
{
	return &session->config;
}

ZklClient *
zkl__client(const ZklSession *session)
{
	return session->client;
}

bool
zkl__is_connected(const ZklSession *session)
{
	return session->state == ZKL_SESSION_CONNECTED;
}

bool
zkl__is_final(const ZklSession *session)
{
	return session->state >= ZKL_SESSION_EXPIRED;
}

/* Returns why the session has ended, or PENDING. */
ZklStatus
zkl__final_status(const ZklSession *session)
{
	switch (session->state)
	{
		case ZKL_SESSION_EXPIRED:
			return ZKL_SESSION_LOST;
		case ZKL_SESSION_AUTH_FAILED:
			return ZKL_AUTH_FAILED;
		case ZKL_SESSION_CONNECTING:
		case ZKL_SESSION_CONNECTED:
		case ZKL_SESSION_SUSPENDED:
			break;
	}
	return ZKL_PENDING;
}

int64_t
zkl__session_id(const ZklSession *session)
{
	return session->connection.session_id;
}

uint64_t
zkl__n_answers(const ZklSession *session)
{
	return session->n_answers;
}

/* Returns whether everything will be driven again, see zkl__retry_later(). */
bool
zkl__has_retry(const ZklSession *session)
{
	return session->retry_ms != 0;
}

/* Counts what cannot be trusted once the session timeout has passed without a connection. */
void
zkl__count_holds(ZklSession *session, int change)
{
	session->n_holds += change;
}

/* Has the parts free what is no longer used, when the mutex is given back. */
void
zkl__sweep_later(ZklSession *session)
{
	session->garbage = true;
}

char *
zkl__path(const char *parent, const char *child)
{
	size_t		parent_length = strlen(parent);
	char	   *path = malloc(parent_length + strlen(child) + 2);

	if (path)
	{
		memcpy(path, parent, parent_length);
		path[parent_length] = '/';
		strcpy(path + parent_length + 1, child);
	}
	return path;
}
