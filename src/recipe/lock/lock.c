/*-------------------------------------------------------------------------
 *
 * lock.c
 *		The locks that a session holds: release, downgrade, confirmation, loss.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

typedef struct Locks
{
	ZklLock    *first;
	int			n_lost;

	ZklCall    *confirm_call;
	bool		confirm_wanted;
	ZklStatus	confirm_status;
	int64_t		confirmed_ms;	/* OK: submit time of the confirming multi */
	ZklLock   **confirm_locks;	/* the lock of each operation of the multi */
	int			n_confirm_locks;
} Locks;

static Locks *
locks_of(const ZklSession *session)
{
	return zkl__state(session, ZKL_PART_LOCKS);
}

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

	zkl__session_lock(session);
	lost = lock->lost || zkl__is_final(session);
	zkl__session_unlock(session);
	return lost;
}

/* Marks the lock as lost, without informing its owner. */
void
zkl__lock_lose(ZklLock *lock)
{
	locks_of(lock->session)->n_lost += !lock->lost;
	lock->lost = true;
}

void
zkl__notify_loss(const ZklSession *session)
{
	if (zkl__config(session)->on_loss_io)
		zkl__config(session)->on_loss_io();
}

int
zkl_lock_revocations(ZklLock *lock)
{
	ZklSession *session = lock->session;
	int			n;

	zkl__session_lock(session);
	n = lock->revocations;
	zkl__session_unlock(session);
	return n;
}

void
zkl__notify_revocation(const ZklSession *session)
{
	if (zkl__config(session)->on_revoke_io)
		zkl__config(session)->on_revoke_io();
}

/* Handles the loss of a held node: another client deleted it. */
void
zkl__lock_node_lost(ZklNode *node)
{
	ZklLock    *lock = node->lock;

	if (lock == NULL)
		return;
	if (lock->taken && !lock->lost)
		zkl__notify_loss(node->session);
	zkl__lock_lose(lock);
	if (lock->anchor == node)
		lock->anchor = NULL;
	if (lock->upgrade == node)
		lock->upgrade = NULL;
	node->lock = NULL;
	zkl__wake(node->session);
}

static void
node_release(ZklNode **node)
{
	if (*node)
		zkl__node_leave(*node);
	*node = NULL;
}

/* Adds a granted lock to the session's. */
void
zkl__lock_link(ZklLock *lock)
{
	Locks	   *locks = locks_of(lock->session);

	lock->next = locks->first;
	if (lock->next)
		lock->next->prev = lock;
	locks->first = lock;
	zkl__count_holds(lock->session, 1);
}

static void
lock_free(ZklLock *lock)
{
	Locks	   *locks = locks_of(lock->session);

	zkl__count_holds(lock->session, -1);
	if (lock->prev)
		lock->prev->next = lock->next;
	else
		locks->first = lock->next;
	if (lock->next)
		lock->next->prev = lock->prev;
	locks->n_lost -= lock->lost;
	for (int i = lock->confirm_index; i < locks->n_confirm_locks &&
		 locks->confirm_locks[i] == lock; i++)
		locks->confirm_locks[i] = NULL;
	free(lock);
}

void
zkl__lock_reduce(ZklLock *lock, ZklMode mode)
{
	if (mode == ZKL_MODE_NONE)
	{
		node_release(&lock->upgrade);
		node_release(&lock->anchor);
		lock_free(lock);
	}
	else if (mode == ZKL_MODE_SHARED && lock->upgrade)
		node_release(&lock->upgrade);
	else if (mode == ZKL_MODE_SHARED && lock->anchor &&
			 lock->anchor->mode == ZKL_MODE_EXCLUSIVE)
		zkl__node_downgrade(lock->anchor);
}

void
zkl_lock_reduce(ZklLock *lock, ZklMode mode)
{
	ZklSession *session = lock->session;

	zkl__session_lock(session);
	zkl__lock_reduce(lock, mode);
	zkl__session_unlock(session);
}


/*
 * Confirmation: a multi that contains only checks is a transaction of its own, so
 * its success proves that the leader has not expired the session.
 */

static void
decide_confirm(ZklSession *session, ZklStatus status)
{
	Locks	   *locks = locks_of(session);

	locks->confirm_wanted = false;
	locks->confirm_status = status;
}

/* The session existed when the leader turned this call into a transaction. */
static void
proven(ZklCall *call)
{
	zkl__lease_confirmed(call->session, call->submitted_ms);
	locks_of(call->session)->confirmed_ms = call->submitted_ms;
	decide_confirm(call->session, ZKL_OK);
}

static void
on_confirmed(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	Locks	   *locks = locks_of(session);

	if (locks->confirm_call != call)
		return;
	locks->confirm_call = NULL;
	switch (result->code)
	{
		case ZKL_RC_OK:
			proven(call);
			break;
		case ZKL_RC_CONNECTION_LOSS:
			break;
		case ZKL_RC_NO_NODE:
			if (locks->n_confirm_locks == 0)
			{
				/* The root is gone, but a failed multi is a transaction, too. */
				proven(call);
				break;
			}
			/* The result names one missing node; the others are checked again. */
			for (int i = 0; i < result->n_ops && i < locks->n_confirm_locks; i++)
				if (result->op_codes[i] == ZKL_RC_NO_NODE && locks->confirm_locks[i])
					zkl__lock_lose(locks->confirm_locks[i]);
			zkl__confirm_drive(session);
			break;
		default:
			decide_confirm(session, ZKL_SERVER_ERROR);
	}
	zkl__wake(session);
}

/* Returns whether a node is being renamed: then neither name can be checked. */
static bool
is_moving(const ZklSession *session)
{
	for (const ZklLock *lock = locks_of(session)->first; lock; lock = lock->next)
		if (lock->anchor && lock->anchor->state == NODE_DOWNGRADING &&
			!lock->anchor->is_move_refused)
			return true;
	return false;
}

/* Adds a check of the node, which may be NULL; false if out of memory. */
static bool
add_check(Locks *locks, ZklOp *ops, int *n, ZklLock *lock, ZklNode *node)
{
	if (node == NULL || lock->lost)
		return true;
	locks->confirm_locks[*n] = lock;
	return zkl__op_for_node(&ops[(*n)++], ZKL_OP_CHECK, node);
}

static void
send_checks(ZklSession *session, ZklOp *ops)
{
	Locks	   *locks = locks_of(session);
	ZklCall    *call = zkl__call_new(session, on_confirmed, NULL, NULL);
	int			n = 0;
	bool		complete = call != NULL;

	for (ZklLock *lock = locks->first; lock; lock = lock->next)
	{
		lock->confirm_index = n;
		complete = complete &&
			add_check(locks, ops, &n, lock, lock->anchor) &&
			add_check(locks, ops, &n, lock, lock->upgrade);
	}
	locks->n_confirm_locks = n;
	if (complete && n == 0)
	{
		ops[0].kind = ZKL_OP_CHECK;
		ops[0].path = strdup(zkl__config(session)->root);
		complete = ops[0].path != NULL;
		n = 1;
	}
	if (call)
		call->confirms = true;
	locks->confirm_call =
		zkl__call_sent(call, complete && zkl_client_multi(zkl__client(session), ops, n,
														  &call->completion));
}

void
zkl__confirm_drive(ZklSession *session)
{
	Locks	   *locks = locks_of(session);
	size_t		n = 1;
	ZklOp	   *ops;

	if (!locks->confirm_wanted || locks->confirm_call || is_moving(session) ||
		!zkl__is_connected(session))
		return;
	for (ZklLock *lock = locks->first; lock; lock = lock->next)
		if (!lock->lost)
			n += (lock->anchor != NULL) + (lock->upgrade != NULL);
	free(locks->confirm_locks);
	locks->n_confirm_locks = 0;
	locks->confirm_locks = calloc(n, sizeof(ZklLock *));
	ops = calloc(n, sizeof(ZklOp));
	if (ops && locks->confirm_locks)
		send_checks(session, ops);
	else
		decide_confirm(session, ZKL_NO_MEMORY);
	zkl__ops_free(ops, (int) n);
}

static void
start_confirm(ZklSession *session)
{
	locks_of(session)->confirm_wanted = true;
	locks_of(session)->confirm_status = ZKL_PENDING;
	zkl__confirm_drive(session);
}

void
zkl_session_confirm(ZklSession *session, bool fresh)
{
	zkl__session_lock(session);
	if (fresh)
		locks_of(session)->confirm_call = NULL;
	start_confirm(session);
	zkl__session_unlock(session);
}

ZklStatus
zkl_session_confirmed(ZklSession *session)
{
	const Locks *locks = locks_of(session);
	ZklStatus	status;

	zkl__session_lock(session);
	if (locks->confirm_status == ZKL_OK && !zkl__is_final(session) &&
		!zkl__lease_suffices(session, locks->confirmed_ms))
		start_confirm(session);
	status = zkl__is_final(session) ? zkl__final_status(session) : locks->confirm_status;
	zkl__session_unlock(session);
	return status;
}

bool
zkl_session_is_intact(ZklSession *session)
{
	bool		intact;

	zkl__session_lock(session);
	intact = !zkl__is_final(session) && locks_of(session)->n_lost == 0;
	zkl__session_unlock(session);
	return intact;
}


/*
 * Events of the session
 */

static void
on_session_lost(ZklSession *session)
{
	bool		any = false;

	for (const ZklLock *lock = locks_of(session)->first; lock; lock = lock->next)
		any = any || (lock->taken && !lock->lost);
	if (any)
		zkl__notify_loss(session);
}

static void
on_free(ZklSession *session)
{
	Locks	   *locks = locks_of(session);

	while (locks->first)
	{
		ZklLock    *lock = locks->first;

		locks->first = lock->next;
		free(lock);
	}
	free(locks->confirm_locks);
}

const ZklSessionPart zkl__locks_part = {
	.state_size = sizeof(Locks),
	.on_drive = zkl__confirm_drive,
	.on_session_lost = on_session_lost,
	.on_free = on_free,
};
