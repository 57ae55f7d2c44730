/*-------------------------------------------------------------------------
 *
 * waiters.c
 *		The parties of a scene as backends of servers.
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe/queue/node.h"
#include "waiters.h"

#define MAX_HELD 32

static char server_of[MAX_PARTIES];
static Party *local[MAX_PARTIES];
static bool only_behind_waiter[MAX_PARTIES];
static char verdicts[MAX_PARTIES][128];
static ZklDeadlock *deadlocks[MAX_PARTIES];
static int	n_victims;
static int	n_false_deadlocks;

static int
index_of(const Party *party)
{
	return (int) (party - parties);
}

void
waiters_begin(const char *servers)
{
	memset(server_of, 0, sizeof(server_of));
	memset(local, 0, sizeof(local));
	memset(only_behind_waiter, 0, sizeof(only_behind_waiter));
	memset(verdicts, 0, sizeof(verdicts));
	for (int i = 0; i < MAX_PARTIES; i++)
	{
		zkl_deadlock_free(deadlocks[i]);
		deadlocks[i] = NULL;
	}
	memcpy(server_of, servers, strlen(servers));
	n_victims = 0;
	n_false_deadlocks = 0;
}

void
wait_locally(Party *party, Party *other)
{
	local[index_of(party)] = other;
	only_behind_waiter[index_of(party)] = false;
}

void
wait_behind_waiter(Party *party, Party *other)
{
	local[index_of(party)] = other;
	only_behind_waiter[index_of(party)] = true;
}

bool
waits_behind_waiter(const Party *party)
{
	return local[index_of(party)] && only_behind_waiter[index_of(party)];
}

Party *
waits_locally_for(const Party *party)
{
	return local[index_of(party)];
}


/*
 * Reporting waits
 */

/* Returns the last party on the way by which party waits for other, or NULL. */
static const Party *
waits_behind(const Party *party, const Party *other)
{
	for (int i = 0; i < MAX_PARTIES && party; i++)
	{
		if (local[index_of(party)] == other)
			return party;
		party = local[index_of(party)];
	}
	return NULL;
}

static int
compare(const void *a, const void *b)
{
	uint64_t	x = (uint64_t) ((const ZklLocalWaiter *) a)->session_id;
	uint64_t	y = (uint64_t) ((const ZklLocalWaiter *) b)->session_id;

	return x < y ? -1 : x > y;
}

static uint32_t
key_of(const char *name)
{
	uint32_t	key = 0;

	for (; *name; name++)
		key = key * 31 + (unsigned char) *name;
	return key;
}

/* Lists what PostgreSQL's lock table would show of a party; returns the number. */
static int
held_by(const Party *party, ZklHeld *held)
{
	int			n = 0;

	for (const Hold *hold = next_hold(party, NULL); hold && n < MAX_HELD;
		 hold = next_hold(party, hold))
		held[n++] = (ZklHeld)
	{
		key_of(hold->name),
			hold->size > 0 ? ZKL_HELD_PERMIT
			: hold->mode == ZKL_MODE_EXCLUSIVE ? ZKL_HELD_EXCLUSIVE : ZKL_HELD_SHARED
	};
	return n;
}

ZklDeadlock *
publish(Party *party)
{
	ZklHeld		held[MAX_PARTIES][MAX_HELD];
	Ask		   *ask = pending_of(party);
	const char *locks[MAX_ITEMS];
	uint32_t	keys[MAX_ITEMS];
	ZklLocalWaiter local_waiters[MAX_PARTIES];
	ZklWaitReport report = {.instance = (uint64_t) server_of[index_of(party)],
		.pid = index_of(party) + 1, .server = "server\tof\nmine",
	.locks = locks, .keys = keys, .local_waiters = local_waiters};
	ZklRequestInfo info;

	if (ask == NULL)
		return NULL;
	zkl_request_info(ask->request, &info);
	report.probe = info.probe;
	if (!info.blocked)
		return NULL;
	for (int i = 0; i < ask->n; i++)
	{
		locks[i] = ask->names[i];
		keys[i] = key_of(ask->names[i]);
	}
	for (int i = 0; i < MAX_PARTIES; i++)
	{
		const Party *last = waits_behind(&parties[i], party);

		if (parties[i].session && server_of[i] == server_of[index_of(party)] && last)
			local_waiters[report.n_local_waiters++] = (ZklLocalWaiter)
		{
			fake_session_id(parties[i].client), i + 1, "a row", waits_behind_waiter(last),
				held[i], held_by(&parties[i], held[i])
		};
	}
	qsort(local_waiters, (size_t) report.n_local_waiters, sizeof(ZklLocalWaiter), compare);
	return zkl_request_publish(ask->request, &report);
}

bool
is_victim_now(Party *party)
{
	ZklDeadlock *deadlock = publish(party);
	bool		any = deadlock != NULL;

	zkl_deadlock_free(deadlock);
	return any;
}

static void
note_verdict(const Party *party, ZklDeadlock *deadlock)
{
	ZklDeadlock **kept = &deadlocks[index_of(party)];
	char	   *text = verdicts[index_of(party)];
	int			length = 0;

	if (deadlock == NULL)
		return;
	zkl_deadlock_free(*kept);
	*kept = deadlock;
	text[0] = '\0';
	for (int i = 0; i < deadlock->n; i++)
		length += sprintf(text + length, "%s%d", i ? ">" : "", deadlock->edges[i].pid);
}

static bool
is_readable(const Party *party)
{
	struct pollfd fd = {.events = POLLIN};

	if (party->session == NULL)
		return false;
	fd.fd = zkl_session_fd(party->session);
	return poll(&fd, 1, 0) > 0;
}

/* Runs everything until no descriptor is readable any more. */
static void
serve(void)
{
	bool		any = true;

	for (int round = 0; round < 100 && any; round++)
	{
		any = false;
		fake_run_all();
		for (int i = 0; i < MAX_PARTIES; i++)
			if (is_readable(&parties[i]))
			{
				any = true;
				zkl_session_receive(parties[i].session);
				note_verdict(&parties[i], publish(&parties[i]));
			}
	}
}

void
publish_all(void)
{
	for (int round = 0; round < 12; round++)
	{
		for (int i = 0; i < MAX_PARTIES; i++)
			if (parties[i].session)
				note_verdict(&parties[i], publish(&parties[i]));
		serve();
		fake_advance(100);
	}
}

const ZklDeadlock *
deadlock_of(const Party *party)
{
	return deadlocks[index_of(party)];
}

const char *
verdict_of(const Party *party)
{
	return verdicts[index_of(party)];
}

int
reported_by(const Party *party)
{
	int			n = 0;

	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		if (fake_tree_child(node->path, WAITS))
			n += party == NULL || node->owner == fake_session_id(party->client);
	return n;
}


/*
 * Victims
 */

int
victims(void)
{
	return n_victims;
}

int
false_deadlocks(void)
{
	return n_false_deadlocks;
}

static void
release_rows(const Party *party)
{
	for (int i = 0; i < MAX_PARTIES; i++)
		if (local[i] == party)
			local[i] = NULL;
}

void
end_transaction(Party *party)
{
	give_up_all(party);
	release_all(party);
	wait_locally(party, NULL);
	release_rows(party);
}

void
begin_again(Party *party)
{
	release_rows(party);
	wait_locally(party, NULL);
	scene_rejoin(party);
}

void
on_error(Party *party)
{
	zkl_session_receive(party->session);
	if (!is_victim_now(party))
		return;
	if (!is_truly_deadlocked(party))
	{
		n_false_deadlocks++;
		diag("party %d gets the error of a deadlock that is none", index_of(party));
	}
	n_victims++;
	end_transaction(party);
}

void
wake_owners(void)
{
	for (int i = 0; i < MAX_PARTIES; i++)
		if (is_readable(&parties[i]))
			on_error(&parties[i]);
}

static bool
any_deadlock(void)
{
	for (int i = 0; i < MAX_PARTIES; i++)
		if (parties[i].session && is_truly_deadlocked(&parties[i]))
			return true;
	return false;
}

bool
deadlocks_end(void)
{
	for (int round = 0; round < 60; round++)
	{
		heal();
		wake_owners();
		if (!any_deadlock())
			return true;
		for (int i = 0; i < MAX_PARTIES; i++)
			if (parties[i].session == NULL)
				continue;
			else if (zkl_session_state(parties[i].session) == ZKL_SESSION_EXPIRED)
				begin_again(&parties[i]);
			else
				on_error(&parties[i]);
		fake_run_all();
	}
	return false;
}
