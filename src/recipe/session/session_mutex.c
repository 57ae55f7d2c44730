/*-------------------------------------------------------------------------
 *
 * session_mutex.c
 *		Locks and unlocks a session's mutex, and wakes its owner.
 *
 * Owns the descriptor that the owner sleeps on.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "internal.h"

void
zkl__session_lock(ZklSession *session)
{
	pthread_mutex_lock(&session->mutex);
}

/*
 * Frees nodes, requests and batches that are no longer used.  Only this function does, so
 * that no function frees what its caller iterates over.
 */
static void
sweep(ZklSession *session)
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
	uint64_t	one = 1;
	bool		wake = session->wake_due && !session->woken && !session->owner_reads;
	ZklClient  *client = session->is_left ? NULL : session->client;

	sweep(session);
	session->wake_due = false;
	session->woken = session->woken || wake;
	pthread_mutex_unlock(&session->mutex);
	while (wake && write(session->wakeup_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	if (client)
		zkl_client_flush(client);
}

void
zkl__wake(ZklSession *session)
{
	session->wake_due = true;
}

/* Creates the descriptor for the owner: wakeup_fd, and what the client adds to it. */
bool
zkl__wait_fd_open(ZklSession *session)
{
	struct epoll_event event = {.events = EPOLLIN};

	session->wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	session->wait_fd = epoll_create1(EPOLL_CLOEXEC);
	return session->wakeup_fd >= 0 && session->wait_fd >= 0 &&
		epoll_ctl(session->wait_fd, EPOLL_CTL_ADD, session->wakeup_fd, &event) == 0;
}

void
zkl__wait_fd_close(ZklSession *session)
{
	if (session->wakeup_fd >= 0)
		close(session->wakeup_fd);
	if (session->wait_fd >= 0)
		close(session->wait_fd);
}

int
zkl_session_fd(const ZklSession *session)
{
	return session->wait_fd;
}

void
zkl_session_receive(ZklSession *session)
{
	uint64_t	count;

	zkl__session_lock(session);
	session->owner_reads = true;
	zkl__session_unlock(session);
	zkl_client_exchange(session->client);
	zkl__session_lock(session);
	session->owner_reads = false;
	if (session->woken)
		session->woken = read(session->wakeup_fd, &count, sizeof(count)) < 0;
	zkl__session_unlock(session);
}
