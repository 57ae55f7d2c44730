/*-------------------------------------------------------------------------
 *
 * revoker.c
 *		Requests the release of a lock from its holders.
 *
 * Writes to one node of each holder, of the version that was read.  A holder writes its own
 * data back, which is another version.  So, if an answer is lost, the next attempt does not
 * write to a node that has changed since: its holder has received the request.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/builtins.h"

#include "backend/lock/queues.h"
#include "backend/lock/revoker.h"

typedef struct Holder
{
	const char *path;
	int32		version;		/* of the data that were read */
	bool		is_sent;		/* a request was sent */
	bool		is_seen;		/* ... in an earlier attempt, and this attempt has read the node */
} Holder;

typedef struct Revocation
{
	const char *name;			/* encoded */
	bool		spares_superusers;
	List	   *sent;			/* holders to which a request was sent */
	List	   *holders;		/* of this attempt, to which one is to be sent */
	int			n_requested;	/* in this attempt; also n_spared and n_denied */
	int			n_spared;
	int			n_denied;
	MemoryContext context;		/* of all this */
} Revocation;

static bool
begins_with(const ZklockEntry *entry, const char *text)
{
	int			length = strlen(text);

	return entry->data_len >= length && memcmp(entry->data, text, length) == 0;
}

/* Returns the holder to whose node an earlier attempt has sent a request; or NULL. */
static Holder *
find_sent(const Revocation *revocation, const char *path)
{
	ListCell   *cell;

	foreach(cell, revocation->sent)
	{
		Holder	   *holder = lfirst(cell);

		if (strcmp(holder->path, path) == 0)
			return holder;
	}
	return NULL;
}

/* Notes that a request is to be sent to a holder, unless the holder has received one. */
static void
note_holder(Revocation *revocation, const ZklockEntry *entry)
{
	MemoryContext old = MemoryContextSwitchTo(revocation->context);
	Holder	   *holder = find_sent(revocation, entry->path);

	if (holder == NULL)
	{
		holder = palloc0(sizeof(Holder));
		holder->path = pstrdup(entry->path);
		holder->version = entry->version;
	}
	holder->is_seen = true;
	if (holder->version == entry->version)
		revocation->holders = lappend(revocation->holders, holder);
	else
		revocation->n_requested++;
	MemoryContextSwitchTo(old);
}

/* Of an upgrade, the exclusive node gets the request. */
static void
use_entry(const ZklockEntry *entry, void *arg)
{
	Revocation *revocation = arg;

	if (entry->position > 0 || entry->is_anchor)
		return;
	if (revocation->spares_superusers && begins_with(entry, ZKL_SUPERUSER_DATA))
		revocation->n_spared++;
	else if (revocation->spares_superusers && begins_with(entry, ZKL_REVOKE_MESSAGE) &&
			 entry->data_len == (int) strlen(ZKL_REVOKE_MESSAGE))
		revocation->n_requested++;
	else
		note_holder(revocation, entry);
}

/* Counts holders that have released the lock since a request was sent to them. */
static void
count_gone(Revocation *revocation)
{
	ListCell   *cell;

	foreach(cell, revocation->sent)
	{
		Holder	   *holder = lfirst(cell);

		revocation->n_requested += !holder->is_seen;
		holder->is_seen = false;
	}
}

static void
note_sent(Revocation *revocation, Holder *holder)
{
	MemoryContext old = MemoryContextSwitchTo(revocation->context);

	if (!holder->is_sent)
		revocation->sent = lappend(revocation->sent, holder);
	holder->is_sent = true;
	MemoryContextSwitchTo(old);
}

static ZklOp
request_op(const Holder *holder, int32 version)
{
	return (ZklOp)
	{
		.kind = ZKL_OP_SET,.path = holder->path,.data = ZKL_REVOKE_MESSAGE,
			.data_len = strlen(ZKL_REVOKE_MESSAGE),.version = version
	};
}

/*
 * Sends requests to some holders.  Data that have changed since they were read are replaced
 * all the same: the holder has only processed another request.
 */
static bool
send_requests(ZklockReader *reader, Revocation *revocation, Holder **holders, int n_holders)
{
	ZklOp		ops[ZKLOCK_READ_BATCH];
	const ZklBatchResult *results;
	int			n = n_holders;

	for (int i = 0; i < n_holders; i++)
	{
		note_sent(revocation, holders[i]);
		ops[i] = request_op(holders[i], holders[i]->version);
	}
	while (n > 0)
	{
		int			n_again = 0;

		results = zklock_read_batch(reader, ops, n);
		for (int i = 0; results && i < n; i++)
			if (results[i].code == ZKL_RC_BAD_VERSION)
			{
				holders[n_again] = holders[i];
				ops[n_again] = request_op(holders[n_again], ZKL_ANY_VERSION);
				n_again++;
			}
			else if (zklock_read_found(reader, results[i].code, &revocation->n_denied))
				revocation->n_requested++;
		if (results == NULL)
			return false;
		n = n_again;
	}
	return true;
}

static bool
send_all_requests(ZklockReader *reader, Revocation *revocation)
{
	Holder	   *holders[ZKLOCK_READ_BATCH];
	ListCell   *cell;
	int			n = 0;

	foreach(cell, revocation->holders)
	{
		holders[n++] = lfirst(cell);
		if (n < ZKLOCK_READ_BATCH)
			continue;
		if (!send_requests(reader, revocation, holders, n))
			return false;
		n = 0;
	}
	return send_requests(reader, revocation, holders, n);
}

static bool
attempt(ZklockReader *reader, void *arg)
{
	Revocation *revocation = arg;

	revocation->holders = NIL;
	revocation->n_requested = 0;
	revocation->n_spared = 0;
	revocation->n_denied = 0;
	if (!zklock_read_lock(reader, revocation->name, use_entry, revocation, &revocation->n_denied))
		return false;
	count_gone(revocation);
	return send_all_requests(reader, revocation);
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

	zklock_read_ensemble(&action, attempt, &revocation);
	if (revocation.n_spared > 0)
		raise_spared(name, &revocation);
	if (revocation.n_denied > 0)
	{
		ZklockProblem problem = zklock_problem_of(ZKL_NO_AUTH, 0);

		problem.detail = psprintf("Holders that received the request: %d; znodes that could not be read or changed: %d.",
								  revocation.n_requested, revocation.n_denied);
		zklock_fail(&action, problem);
	}
	return revocation.n_requested;
}
