/*-------------------------------------------------------------------------
 *
 * api.c
 *		The functions of recipe.h about requests and locks: each enters the session, calls the
 *		layer that does the work, and leaves.
 *
 * Sessions and batches, which concern no higher layer, are entered in src/recipe/session;
 * engine.c opens and closes sessions; detectors are in src/recipe/deadlock.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"


/*
 * Requests
 */

ZklRequest *
zkl_lock_request(ZklSession *session, const ZklLockItem *items, int n_items,
				 bool non_blocking, const char *data, int data_len)
{
	ZklRequest *request;

	zkl__enter(session);
	request = zkl__lock_request(session, items, n_items, non_blocking, data, data_len);
	zkl__leave(session);
	return request;
}

ZklRequest *
zkl_permit_request(ZklSession *session, const char *name, int capacity, bool non_blocking,
				   const char *data, int data_len)
{
	ZklRequest *request;

	zkl__enter(session);
	request = zkl__permit_request(session, name, capacity, non_blocking, data, data_len);
	zkl__leave(session);
	return request;
}

ZklRequest *
zkl_kept_request(ZklSession *session, const char *name, ZklMode mode, bool non_blocking)
{
	char	   *path = zkl__path(zkl__config(session)->locks_path, name);
	ZklRequest *request = NULL;

	zkl__enter(session);
	if (path)
		request = zkl__kept_request(session, path, mode, non_blocking);
	zkl__leave(session);
	free(path);
	return request;
}

ZklStatus
zkl_request_status(ZklRequest *request)
{
	ZklStatus	status;

	zkl__enter(request->session);
	/* The end of the session also ends a pending request. */
	status = request->status == ZKL_PENDING ? zkl__final_status(request->session)
		: request->status;
	zkl__leave(request->session);
	return status;
}

void
zkl_request_info(ZklRequest *request, ZklRequestInfo *info)
{
	zkl__enter(request->session);
	zkl__request_info(request, info);
	if (request->permit)
		zkl__permit_info(request, info);
	zkl__leave(request->session);
}

void
zkl_request_look_again(ZklRequest *request)
{
	zkl__enter(request->session);
	if (request->permit)
		zkl__permit_look_again(request);
	else
		zkl__request_look_again(request);
	zkl__leave(request->session);
}

ZklLock *
zkl_request_lock(ZklRequest *request, int i)
{
	ZklSession *session = request->session;
	ZklLock    *lock;

	zkl__enter(session);
	lock = zkl__request_take_lock(request, i);
	zkl__leave(session);
	return lock;
}

void
zkl_request_end(ZklRequest *request)
{
	ZklSession *session = request->session;

	zkl__enter(session);
	zkl__request_end(request);
	zkl__leave(session);
}


/*
 * Locks
 */

int64_t
zkl_lock_token(const ZklLock *lock)
{
	return lock->token;
}

bool
zkl_lock_is_lost(ZklLock *lock)
{
	ZklSession *session = lock->session;
	bool		lost;

	zkl__enter(session);
	zkl__lease_check(session);
	lost = lock->lost || zkl__is_final(session);
	zkl__leave(session);
	return lost;
}

int
zkl_lock_revocations(ZklLock *lock)
{
	ZklSession *session = lock->session;
	int			n;

	zkl__enter(session);
	n = lock->revocations;
	zkl__leave(session);
	return n;
}

void
zkl_lock_reduce(ZklLock *lock, ZklMode mode)
{
	ZklSession *session = lock->session;

	zkl__enter(session);
	zkl__lock_reduce(lock, mode);
	zkl__leave(session);
}

void
zkl_lock_keep(ZklLock *lock, int keep_ms)
{
	ZklSession *session = lock->session;

	zkl__enter(session);
	zkl__lock_keep(lock, keep_ms);
	zkl__leave(session);
}

void
zkl_releases_begin(ZklSession *session)
{
	zkl__enter(session);
	zkl__deletes_begin(session);
	zkl__leave(session);
}

void
zkl_releases_end(ZklSession *session)
{
	zkl__enter(session);
	zkl__deletes_end(session);
	zkl__leave(session);
}


/*
 * Other znodes, which are deleted like nodes
 */

void
zkl_delete_later(ZklSession *session, const char *parent, const char *child)
{
	zkl__enter(session);
	zkl__delete_later(session, parent, child);
	zkl__leave(session);
}

bool
zkl_is_deleting_below(ZklSession *session, const char *parent)
{
	bool		any;

	zkl__enter(session);
	any = zkl__nodes_below(session, parent, strlen(parent)) != NULL;
	zkl__leave(session);
	return any;
}


/*
 * Everything that a session can hold, holds or keeps
 */

bool
zkl_session_has_mode(const ZklSession *session, ZklMode mode)
{
	return zkl_has_mode(zkl__config(session)->node_names, mode);
}

void
zkl_session_leave_kept(ZklSession *session)
{
	zkl__enter(session);
	zkl__kept_leave_all(session);
	zkl__leave(session);
}

void
zkl_session_leave_kept_of(ZklSession *session, const char *name)
{
	char	   *path = zkl__path(zkl__config(session)->locks_path, name);

	zkl__enter(session);
	if (path)
		zkl__kept_leave(session, path);
	zkl__leave(session);
	free(path);
}

void
zkl_session_confirm(ZklSession *session, bool fresh)
{
	zkl__enter(session);
	zkl__confirm_start(session, fresh);
	zkl__leave(session);
}

ZklStatus
zkl_session_confirmed(ZklSession *session)
{
	ZklStatus	status;

	zkl__enter(session);
	zkl__lease_check(session);
	status = zkl__confirm_status(session);
	zkl__leave(session);
	return status;
}

bool
zkl_session_is_intact(ZklSession *session)
{
	bool		intact;

	zkl__enter(session);
	zkl__lease_check(session);
	intact = !zkl__is_final(session) && zkl__locks(session)->n_lost == 0;
	zkl__leave(session);
	return intact;
}
