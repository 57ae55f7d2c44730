/*-------------------------------------------------------------------------
 *
 * revoke.c
 *		Requests the release of a lock from its holders.
 *
 * Writes to one node of each holder.  After a lost connection the queue is read again, and
 * the holders whose nodes do not show the request get it.  A holder writes its own data back:
 * then it gets the request a second time, as it would by a second call.  One that has
 * released the lock meanwhile is not counted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/builtins.h"

#include "backend/base/names.h"
#include "backend/lock/lock.h"
#include "backend/lock/znodes.h"
#include "backend/session/errors.h"
#include "recipe/batch.h"
#include "recipe/recipe.h"

typedef struct Revocation
{
	const char *name;			/* encoded */
	bool		spares_superusers;
	bool		is_repeated;	/* an earlier attempt may have sent requests */
	MemoryContext context;		/* of the list */

	/* in this attempt */
	List	   *holders;		/* nodes to which a request is to be sent */
	int			n_requested;	/* holders that got one */
	int			n_spared;
} Revocation;

static bool
begins_with(const ZklockEntry *entry, const char *text)
{
	int			length = strlen(text);

	return entry->data_len >= length && memcmp(entry->data, text, length) == 0;
}

/* Returns whether the node shows a request already. */
static bool
is_requested(const ZklockEntry *entry)
{
	return begins_with(entry, ZKL_REVOKE_MESSAGE) &&
		entry->data_len == (int) strlen(ZKL_REVOKE_MESSAGE);
}

/*
 * Of an upgrade, the exclusive node gets the request.  A node that shows a request no longer
 * shows whether its holder is a superuser.  kazoo programs do not look at the data of their
 * nodes, so a request would only destroy what these say about the holder.
 */
static void
use_entry(const ZklockEntry *entry, void *arg)
{
	Revocation *revocation = arg;
	MemoryContext old;

	if (entry->position > 0 || entry->is_anchor || entry->maker == ZKL_MAKER_KAZOO)
		return;
	if (revocation->spares_superusers && begins_with(entry, ZKL_SUPERUSER_DATA))
		revocation->n_spared++;
	else if (is_requested(entry) && (revocation->spares_superusers || revocation->is_repeated))
		revocation->n_requested++;
	else
	{
		old = MemoryContextSwitchTo(revocation->context);
		revocation->holders = lappend(revocation->holders, pstrdup(entry->path));
		MemoryContextSwitchTo(old);
	}
}

/* Sends requests to some holders, from the one with this index on. */
static bool
send_requests(ZklockReader *reader, Revocation *revocation, int from)
{
	ZklOp	   *ops = palloc(ZKLOCK_READ_BATCH * sizeof(ZklOp));
	int			n = Min(list_length(revocation->holders) - from, ZKLOCK_READ_BATCH);
	const ZklResult *results;

	for (int i = 0; i < n; i++)
		ops[i] = (ZklOp)
	{
		.kind = ZKL_OP_SET,.path = list_nth(revocation->holders, from + i),
			.data = ZKL_REVOKE_MESSAGE,.data_len = strlen(ZKL_REVOKE_MESSAGE),
			.version = ZKL_ANY_VERSION
	};
	results = zklock_read_batch(reader, ops, n);
	for (int i = 0; results && i < n; i++)
		revocation->n_requested +=
			zklock_read_found(reader, results[i].code);
	pfree(ops);
	return results != NULL;
}

static bool
attempt(ZklockReader *reader, void *arg)
{
	Revocation *revocation = arg;

	revocation->holders = NIL;
	revocation->n_requested = 0;
	revocation->n_spared = 0;
	if (!zklock_read_queues(reader, false, revocation->name, use_entry, revocation))
		return false;
	revocation->is_repeated = true;
	for (int from = 0; from < list_length(revocation->holders); from += ZKLOCK_READ_BATCH)
		if (!send_requests(reader, revocation, from))
			return false;
	return true;
}

static void
raise_spared(const ZklockName *name, const Revocation *revocation)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("must be superuser to request release of lock \"%s\" from a superuser's session",
					name->display),
			 errdetail("Number of other holders that received the request: %d.", revocation->n_requested),
			 errhint("Let a superuser call zk_revoke(%s).",
					 quote_literal_cstr(name->display))));
}

int
zklock_revoke(const ZklockName *name)
{
	const ZklockAction action = {
		.format = "ask the holders of lock \"%s\" to release it",.display = name->display
	};
	Revocation	revocation = {
		.name = name->encoded,
		.spares_superusers = !superuser(),
		.context = CurrentMemoryContext
	};
	int			n_denied;

	n_denied = zklock_read_ensemble(&action, attempt, &revocation);
	if (revocation.n_spared > 0)
		raise_spared(name, &revocation);
	if (n_denied > 0)
	{
		ZklockProblem problem = zklock_problem_of(ZKL_NO_AUTH, 0);

		problem.detail = psprintf("Holders that received the request: %d; znodes that could not be read or changed: %d.",
								  revocation.n_requested, n_denied);
		zklock_fail(&action, problem);
	}
	return revocation.n_requested;
}
