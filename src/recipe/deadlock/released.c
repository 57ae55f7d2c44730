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

/* Mark: the holds of this session are known. */
#define HELD_SHOWN '!'

static bool
add_held(ZklCycleCheck *check, uint64_t session, uint32_t key, char kind)
{
	int			n = check->n_held;
	ZklCheckHeld *larger;

	if ((n & (n - 1)) == 0)		/* grows at powers of two */
	{
		larger = realloc(check->held, (n ? (size_t) n * 2 : 1) * sizeof(ZklCheckHeld));
		if (larger == NULL)
			return false;
		check->held = larger;
	}
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
		uint64_t	key;

		if (!zkl_read_hex(&text, &key) || !add_held(check, session, (uint32_t) key, kind))
			return false;
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

/* Returns how many holds are before this one; with "equal", also those that are equal. */
static int
count_before(const ZklCycleCheck *check, const ZklCheckHeld *held, bool equal)
{
	int			low = 0;
	int			high = check->n_held;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (compare_held(&check->held[middle], held) < equal)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int
holds(const ZklCycleCheck *check, uint64_t session, uint32_t key, char kind)
{
	ZklCheckHeld held = {session, key, kind};

	return count_before(check, &held, true) - count_before(check, &held, false);
}

/*
 * Has the session released what is waited for?  Only if its holds are known, and none of them
 * conflicts with the wait for a lock, or they are fewer than its n permit nodes.  Each report
 * that lists the session has all its holds.
 */
static bool
has_released(const ZklCycleCheck *check, const ZklCheckWait *wait, uint64_t session, int n)
{
	int			n_reports = holds(check, session, 0, HELD_SHOWN);

	if (n_reports == 0 || holds(check, session, 0, ZKL_HELD_UNKNOWN))
		return false;
	if (wait->kind == ZKL_HELD_PERMIT)
		return holds(check, session, wait->key, ZKL_HELD_PERMIT) / n_reports < n;
	if (holds(check, session, wait->key, ZKL_HELD_EXCLUSIVE))
		return false;
	return wait->kind == ZKL_HELD_SHARED ||
		!holds(check, session, wait->key, ZKL_HELD_SHARED);
}

/* Drops the participants' node sets in which a member has released what is waited for. */
void
zkl_check_drop_released(ZklCycleCheck *check)
{
	if (check->n_held == 0)
		return;
	qsort(check->held, (size_t) check->n_held, sizeof(ZklCheckHeld), compare_held);
	for (int i = 0; i < check->n_participants; i++)
	{
		const ZklWaitNode *node = check->participants[i].node;

		for (int k = node->first_node_set; k < node->first_node_set + node->n_node_sets; k++)
		{
			ZklNodeSet *node_set = &check->reports.node_sets[k];
			int			n = 0;	/* nodes of one session, which are adjacent */

			for (int j = 0; j < node_set->n; j++)
			{
				n = j > 0 && node_set->any_of[j] == node_set->any_of[j - 1] ? n + 1 : 1;
				if (has_released(check, &check->waits[node_set->source], node_set->any_of[j], n))
					node_set->n = 0;
			}
		}
	}
}
