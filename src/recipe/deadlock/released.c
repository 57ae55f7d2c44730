/*-------------------------------------------------------------------------
 *
 * released.c
 *		Drops waits from a cycle check that end by themselves, because the lock is
 *		already released.
 *
 * A session whose connection is down cannot delete the node of a lock that it has
 * released.  If it then waits in PostgreSQL's lock manager, it reports nothing
 * itself; the session of its server that it waits for reports what it still holds
 * there (lock_waiters.c).  A wait for any other of its nodes ends when it
 * reconnects or its session expires, so it is no edge of a deadlock.
 *
 * No I/O, no mutex, like check_result.c.  Declared in cycle_check.h.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "cycle_check.h"
#include "recipe/queue/node.h"

/* Mark: the holds of this session are known. */
#define HELD_SHOWN '!'

static bool
add_held(ZklCycleCheck *check, uint64_t session, uint32_t key, char kind)
{
	if (!zkl_check_grow((void **) &check->held, check->n_held, sizeof(ZklCheckHeld)))
		return false;
	check->held[check->n_held++] = (ZklCheckHeld)
	{
		session, key, kind
	};
	return true;
}

/*
 * Reads the holds of a local waiter; text is NULL if the report lists none, which
 * counts as unknown.  Returns false for malformed text or exhausted memory.
 */
bool
zkl_check_read_held(ZklCycleCheck *check, uint64_t session, const char *text)
{
	if (text == NULL || strchr(text, ZKL_HELD_UNKNOWN))
		return add_held(check, session, 0, ZKL_HELD_UNKNOWN);
	if (!add_held(check, session, 0, HELD_SHOWN))
		return false;
	while (*text != '\0')
	{
		char		kind = *text++;
		char	   *end;
		uint32_t	key = (uint32_t) strtoul(text, &end, 16);

		if (end == text || !add_held(check, session, key, kind))
			return false;
		text = end;
	}
	return true;
}

static int
compare_held(const void *a, const void *b)
{
	const ZklCheckHeld *x = a;
	const ZklCheckHeld *y = b;

	if (x->session != y->session)
		return x->session < y->session ? -1 : 1;
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	return x->key < y->key ? -1 : x->key > y->key;
}

void
zkl_check_sort_held(ZklCycleCheck *check)
{
	if (check->n_held > 1)
		qsort(check->held, (size_t) check->n_held, sizeof(ZklCheckHeld), compare_held);
}

static bool
holds(const ZklCycleCheck *check, uint64_t session, uint32_t key, char kind)
{
	ZklCheckHeld held = {session, key, kind};

	return check->n_held > 0 &&
		bsearch(&held, check->held, (size_t) check->n_held, sizeof(held), compare_held);
}

/* Are the session's holds known, and none of them one that the queue entry waits for? */
static bool
has_released(const ZklCycleCheck *check, const ZklQueueEntry *queue_entry, uint32_t key, uint64_t session)
{
	ZklContender own = {0};

	if (!holds(check, session, 0, HELD_SHOWN) ||
		holds(check, session, 0, ZKL_HELD_UNKNOWN))
		return false;
	if (queue_entry->any)
		return !holds(check, session, key, ZKL_HELD_PERMIT);
	if (holds(check, session, key, ZKL_HELD_EXCLUSIVE))
		return false;

	/* A shared lock does not wait for shared locks. */
	return (zkl_parse_child(queue_entry->child, &own) && !own.writer) ||
		!holds(check, session, key, ZKL_HELD_SHARED);
}

/* Removes the blockers of the queue entry whose nodes will go by themselves. */
void
zkl_check_drop_released(const ZklCycleCheck *check, ZklQueueEntry *queue_entry, ZklKeyOf key_of)
{
	const char *name = strchr(queue_entry->path, '/');
	uint32_t	key;
	int			n = 0;

	if (check->n_held == 0 || name == NULL)
		return;
	name++;
	key = key_of(name, strcspn(name, "/"));
	for (int i = 0; i < queue_entry->n_blockers; i++)
		if (!has_released(check, queue_entry, key, queue_entry->blockers[i]))
			queue_entry->blockers[n++] = queue_entry->blockers[i];
	if (queue_entry->any && n < queue_entry->n_blockers)
		n = 0;					/* one released permit is enough */
	queue_entry->n_blockers = n;
}
