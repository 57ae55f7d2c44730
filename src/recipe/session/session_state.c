/*-------------------------------------------------------------------------
 *
 * session_state.c
 *		Gives every layer the mutex and the state of a session, its timer and its retries.
 *
 * Owns the descriptor that the owner sleeps on.  What a layer schedules here runs later,
 * when the timer fires.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "internal.h"

/*
 * First and longest delay of a retry, after a call could not be sent, or failed without
 * a connection event, or the server refused to delete a node.
 */
#define RETRY_MS 50
#define MAX_RETRY_MS 5000


/*
 * The mutex, and waking the owner
 */

void
zkl__session_lock(ZklSession *session)
{
	pthread_mutex_lock(&session->mutex);
}

/*
 * Frees nodes, requests, batches and other uses that are no longer used.  Only this function does, so
 * that no function frees what its caller iterates over.
 */
void
zkl__sweep(ZklSession *session)
{
	while (session->garbage)
	{
		ZklUses    *uses = session->garbage;

		session->garbage = uses->next;
		uses->free_subject(uses->subject);
	}
}

/*
 * Wakes the owner after the unlock, so that it does not find the mutex taken; an owner
 * that is reading answers needs no wakeup.  Then sends what was submitted, except for a
 * session that its owner has closed: its client may be freed after the unlock.
 */
void
zkl__session_unlock(ZklSession *session)
{
	bool		wake = session->wake_due && !session->woken && !session->owner_reads;
	ZklClient  *client = session->is_left ? NULL : session->client;

	if (session->garbage)
		zkl__sweep(session);
	session->wake_due = false;
	session->woken = session->woken || wake;
	pthread_mutex_unlock(&session->mutex);
	if (wake)
		(void) eventfd_write(session->wakeup_fd, 1);
	if (client)
		zkl_client_flush(client);
}

void
zkl__wake_at_unlock(ZklSession *session)
{
	session->wake_due = true;
}

int
zkl_session_fd(const ZklSession *session)
{
	return session->wait_fd;
}

void
zkl_session_waits(ZklSession *session, bool waits)
{
	zkl_client_waits(session->client, waits);
}

void
zkl_session_receive(ZklSession *session)
{
	eventfd_t	count;

	zkl__session_lock(session);
	session->owner_reads = true;
	zkl__session_unlock(session);
	zkl_client_exchange(session->client);
	zkl__session_lock(session);
	session->owner_reads = false;
	if (session->woken)
		session->woken = eventfd_read(session->wakeup_fd, &count) < 0;
	zkl__session_unlock(session);
}


/*
 * The state
 */

ZklQueues *
zkl__queues(const ZklSession *session)
{
	return session->queues;
}

ZklLocks *
zkl__locks(const ZklSession *session)
{
	return session->locks;
}

const ZklConfig *
zkl__config(const ZklSession *session)
{
	return &session->config;
}

const char *
zkl_session_root(const ZklSession *session)
{
	return session->config.root;
}

/* Writes the path of a child to *room, and moves that behind it. */
char *
zkl__put_path(char **room, const char *parent, const char *child)
{
	char	   *path = *room;

	*room = stpcpy(stpcpy(stpcpy(path, parent), "/"), child) + 1;
	return path;
}

/* Returns the path of a child, malloc'd; NULL if out of memory. */
char *
zkl__path(const char *parent, const char *child)
{
	char	   *room = malloc(strlen(parent) + strlen(child) + 2);

	return room ? zkl__put_path(&room, parent, child) : NULL;
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
	if (session->state == ZKL_SESSION_AUTH_FAILED)
		return ZKL_AUTH_FAILED;
	return zkl__is_final(session) ? ZKL_SESSION_LOST : ZKL_PENDING;
}

int64_t
zkl__session_id(const ZklSession *session)
{
	return session->connection.key.id;
}

int
zkl__session_timeout_ms(const ZklSession *session)
{
	return session->connection.session_timeout_ms;
}

/*
 * The timer
 */

void
zkl__arm_timer(ZklSession *session, int64_t at_ms)
{
	if (!zkl__is_final(session) && (session->timer_ms == 0 || at_ms < session->timer_ms))
	{
		session->timer_ms = at_ms;
		zkl_client_set_timer(session->client, at_ms);
	}
}

void
zkl__set_due(ZklSession *session, int64_t *due_ms, int64_t at_ms)
{
	if (*due_ms != 0 && *due_ms <= at_ms)
		return;
	*due_ms = at_ms;
	zkl__arm_timer(session, at_ms);
}

bool
zkl__take_due(ZklSession *session, int64_t *due_ms, int64_t now)
{
	if (*due_ms == 0)
		return false;
	if (now < *due_ms)
	{
		zkl__arm_timer(session, *due_ms);
		return false;
	}
	*due_ms = 0;
	return true;
}

/* Schedules a retry of everything, with growing delays while retries for this cause continue. */
void
zkl__retry_later(ZklSession *session, ZklRetryCause cause)
{
	ZklRetry   *retry = &session->retries[cause];
	int64_t		now = zkl_now_ms();

	if (retry->at_ms != 0)
		return;
	if (now > retry->requested_ms + 2 * MAX_RETRY_MS)
		retry->delay_ms = 0;
	retry->delay_ms = retry->delay_ms == 0 ? RETRY_MS
		: retry->delay_ms * 2 < MAX_RETRY_MS ? retry->delay_ms * 2
		: MAX_RETRY_MS;
	retry->requested_ms = now;
	zkl__set_due(session, &retry->at_ms, now + retry->delay_ms);
}

/* Returns whether a retry is due, and takes it. */
bool
zkl__take_retry(ZklSession *session, int64_t now)
{
	bool		any = false;

	for (int i = 0; i < ZKL_N_RETRY_CAUSES; i++)
		any |= zkl__take_due(session, &session->retries[i].at_ms, now);
	return any;
}

/* Counts what the owner has taken and relies on: a loss of it is reported to the owner. */
void
zkl__count_relied(ZklSession *session, int change)
{
	session->n_relied += change;
}
