/*-------------------------------------------------------------------------
 *
 * queues.h
 *		Reads the queues of the ensemble, with the nodes of all programs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUEUES_H
#define ZKLOCK_QUEUES_H

#include "backend/lock/cluster.h"

/* One znode of a holder or waiter.  Pointers are valid only during ZklockUseEntry. */
typedef struct ZklockEntry
{
	bool		is_semaphore;	/* else a lock */
	const char *name;			/* of the lock or semaphore, encoded */
	const char *path;			/* of the znode */
	ZklMode		mode;			/* NONE: a permit */
	ZklMaker	maker;			/* as far as the name shows */
	int			position;		/* 0: granted; else the place among the waiters, from 1 */
	bool		is_anchor;		/* the shared node of a session that was granted its upgrade */
	bool		is_readable;	/* if not, the members below are not known */
	int64		token;			/* czxid; of an upgrade, its shared node's */
	int64		session_id;		/* 0: not ephemeral */
	int64		ctime_ms;		/* creation, since 1970, on the leader's clock */
	const char *data;			/* any bytes; NULL: none, or more than recipes write */
	int			data_len;
} ZklockEntry;

typedef void (*ZklockUseEntry) (const ZklockEntry *entry, void *arg);

/*
 * In an attempt of zklock_read_ensemble(): passes all entries of the lock or semaphore with an
 * encoded name, or, without one, of all locks or semaphores below the root, to "use": by name,
 * in the order of the queues, the shared node of an upgrade before the exclusive one.  Returns
 * false if the attempt has failed.
 */
extern bool zklock_read_queues(ZklockReader *reader, bool is_semaphore, const char *name,
							   ZklockUseEntry use, void *arg);

#endif							/* ZKLOCK_QUEUES_H */
