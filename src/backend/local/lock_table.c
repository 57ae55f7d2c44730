/*-------------------------------------------------------------------------
 *
 * lock_table.c
 *		Shows a backend's session and permits in PostgreSQL's lock table.
 *
 * A backend shows the id of its ZooKeeper session by a lock that no other backend
 * requests; this needs no shared memory of our own.  Permits are shown in the same
 * way; locks are there anyway (local_lock.c).  The n permits of a semaphore that a
 * session has are the first n entries for both.
 *
 * pg_advisory_unlock_all() and DISCARD ALL remove these entries: the session's
 * until the next request of the backend, the permits' for good.  That can hide a
 * deadlock.  And a permit that is not shown counts as released, so a non-blocking
 * attempt of another session of this server waits for it without success, for
 * zklock.connect_timeout.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lock.h"

#include "backend/local/local_lock.h"
#include "backend/local/lock_table.h"
#include "backend/session/backend_session.h"
#include "compat.h"

/* Of the former contrib/userlock; pg_locks shows them as "userlock". */
#define SESSION_LOCKTAG_FIELD4 0x5A4B
#define PERMIT_LOCKTAG_FIELD4 0x5A4C

static int64 shown = 0;

static void
set_session_tag(LOCKTAG *tag, int64 session_id)
{
	memset(tag, 0, sizeof(*tag));
	tag->locktag_type = LOCKTAG_USERLOCK;
	tag->locktag_lockmethodid = USER_LOCKMETHOD;
	tag->locktag_field1 = (uint32) zklock_session_namespace();
	tag->locktag_field2 = (uint32) ((uint64) session_id >> 32);
	tag->locktag_field3 = (uint32) session_id;
	tag->locktag_field4 = SESSION_LOCKTAG_FIELD4;
}

bool
zklock_session_in_tag(const LOCKTAG *tag, int64 *session_id)
{
	*session_id = (int64) ((uint64) tag->locktag_field2 << 32 | tag->locktag_field3);
	return tag->locktag_type == LOCKTAG_USERLOCK &&
		tag->locktag_field4 == SESSION_LOCKTAG_FIELD4;
}

/*
 * Tests with ShareLock, so that backends that test at the same time do not see each other
 * as the owner of the entry.
 */
static bool
is_shown(const LOCKTAG *tag)
{
	if (LockAcquire(tag, ShareLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	LockRelease(tag, ShareLock, true);
	return false;
}

/* Removes the entry, if it exists. */
static void
hide(const LOCKTAG *tag)
{
	if (zklock_lock_held_by_me(tag, ExclusiveLock))
		LockRelease(tag, ExclusiveLock, true);
}

void
zklock_hide_session(void)
{
	LOCKTAG		tag;

	set_session_tag(&tag, shown);
	if (shown != 0)
		hide(&tag);
	shown = 0;
}

void
zklock_show_session(ZklSession *session)
{
	int64		session_id = zkl_session_lease(session).session_id;
	LOCKTAG		tag;

	set_session_tag(&tag, session_id);
	if (shown == session_id && zklock_lock_held_by_me(&tag, ExclusiveLock))
		return;
	zklock_hide_session();

	/* Another backend may be testing it right now, for a moment. */
	while (LockAcquire(&tag, ExclusiveLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
	{
		CHECK_FOR_INTERRUPTS();
		if (is_shown(&tag))
			ereport(ERROR,
					(errcode(ERRCODE_SYSTEM_ERROR),
					 errmsg("another backend of this server has the same ZooKeeper session"),
					 errdetail("The ensemble gave session 0x%llx to both.", (unsigned long long) session_id),
					 errhint("Check that zklock.connect_string names servers of one ZooKeeper ensemble, and nothing else.")));
	}
	shown = session_id;
}

bool
zklock_is_session_shown(int64 session_id)
{
	LOCKTAG		tag;

	set_session_tag(&tag, session_id);
	return session_id == shown || is_shown(&tag);
}

bool
zklock_has_session(int pid, int64 session_id)
{
	LockData   *data = GetLockStatusData();
	bool		has = false;

	for (int i = 0; i < data->nelements && !has; i++)
	{
		const LockInstanceData *l = &data->locks[i];
		int64		shown_id;

		has = l->pid == pid && l->holdMask != 0 &&
			zklock_session_in_tag(&l->locktag, &shown_id) && shown_id == session_id;
	}
	pfree(data->locks);
	pfree(data);
	return has;
}


/*
 * Permits
 */

/* Permits of a session and a semaphore are numbered from 0. */
static void
set_permit_tag(LOCKTAG *tag, int64 session_id, uint64 semaphore, int i)
{
	uint64		key[4] = {zklock_session_namespace(), (uint64) session_id, semaphore, (uint64) i};
	uint64		hash = hash_bytes_extended((unsigned char *) key, sizeof(key), 0);

	memset(tag, 0, sizeof(*tag));
	tag->locktag_type = LOCKTAG_USERLOCK;
	tag->locktag_lockmethodid = USER_LOCKMETHOD;
	tag->locktag_field1 = (uint32) semaphore;
	tag->locktag_field2 = (uint32) (hash >> 32);
	tag->locktag_field3 = (uint32) hash;
	tag->locktag_field4 = PERMIT_LOCKTAG_FIELD4;
}

void
zklock_show_permit(ZklockHold *hold, ZklSession *session)
{
	int64		session_id = zkl_session_lease(session).session_id;
	LOCKTAG		tag;

	if (hold->shown_in == session_id)
		return;
	zklock_hide_permit(hold);
	set_permit_tag(&tag, session_id, hold->key, hold->n_shown);
	zklock_wait_in_lock_table(&tag, ExclusiveLock);
	hold->shown_in = session_id;
	hold->n_shown++;
}

/* Removes the last entry, whichever permit it was made for. */
void
zklock_hide_permit(ZklockHold *hold)
{
	ZklockHold *youngest = zklock_hold_find_permit(&hold->name, NULL);
	ZklockHold *next = zklock_hold_find_permit(&hold->name, youngest);
	LOCKTAG		tag;

	if (hold->shown_in == 0)
		return;
	set_permit_tag(&tag, hold->shown_in, hold->key, --youngest->n_shown);
	hide(&tag);
	hold->shown_in = 0;
	if (hold == youngest && next)
		next->n_shown = youngest->n_shown;
}

int
zklock_count_released_permits(uint64 semaphore, const int64 *sessions, int n,
							  int enough)
{
	int			n_released = 0;
	int			first = 0;		/* of the same session */

	for (int i = 0; i < n && n_released < enough; i++)
	{
		LOCKTAG		tag;

		CHECK_FOR_INTERRUPTS();
		if (sessions[i] != sessions[first])
			first = i;
		set_permit_tag(&tag, sessions[i], semaphore, i - first);
		n_released += !is_shown(&tag) && zklock_is_session_shown(sessions[i]);
	}
	return n_released;
}


/*
 * The locks of one backend
 */

bool
zklock_held_in_tag(const LOCKTAG *tag, LOCKMASK mask, uint32 namespace_hash, ZklHeld *held)
{
	uint64		key;

	if (tag->locktag_type == LOCKTAG_USERLOCK &&
		tag->locktag_field4 == PERMIT_LOCKTAG_FIELD4)
	{
		held->key = tag->locktag_field1;
		held->kind = ZKL_HELD_PERMIT;
		return (mask & LOCKBIT_ON(ExclusiveLock)) != 0;
	}
	held->kind = (mask & LOCKBIT_ON(ExclusiveLock)) ? ZKL_HELD_EXCLUSIVE : ZKL_HELD_SHARED;
	if (!zklock_local_key(tag, &key))
		return false;
	held->key = (uint32) key ^ namespace_hash;
	return mask != 0;
}
