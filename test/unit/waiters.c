/*-------------------------------------------------------------------------
 *
 * waiters.c
 *		The parties of a scene as backends of servers.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe/queue/node_names.h"
#include "waiters.h"

#define MAX_HELD 32

static char server_of[MAX_PARTIES];
static Party *local[MAX_PARTIES];
static bool only_behind_waiter[MAX_PARTIES];
static uint64_t local_wait[MAX_PARTIES];	/* a new number for each wait */
static uint64_t last_local_wait;
static char verdicts[MAX_PARTIES][128];
static const ZklDeadlock *deadlocks[MAX_PARTIES];
static int	n_victims;
static int	n_false_deadlocks;
static bool is_sentenced[MAX_PARTIES];	/* its verdict has succeeded in the ensemble ... */
static bool was_deadlocked[MAX_PARTIES];	/* ... at a moment when it was in a deadlock */

static int
index_of(const Party *party)
{
	return (int) (party - parties);
}

/*
 * Two verdicts about deadlocks with a common member can both succeed, the common member's
 * last.  If its answer is the first to arrive, it ends both deadlocks.  So what counts is the
 * moment when the verdict succeeds in the ensemble, which makes the report empty.
 */
static void
note_sentences(void)
{
	char		path[100];

	for (int i = 0; i < MAX_PARTIES; i++)
	{
		const FakeNode *report = NULL;
		bool		is_new;

		if (parties[i].session)
		{
			snprintf(path, sizeof(path), WAITING "/%" PRIx64, (uint64_t) fake_session_id(parties[i].client));
			report = fake_tree_find(path);
		}
		is_new = report && report->data_len == 0 && !is_sentenced[i];
		is_sentenced[i] = report && report->data_len == 0;
		was_deadlocked[i] = is_sentenced[i] && (is_new ? is_truly_deadlocked(&parties[i]) : was_deadlocked[i]);
	}
}

static int	find_waiters(Party *party, const ZklLocalWaiter **local_waiters);
static ZklDetectorConfig config(Party *party);

void
waiters_begin(const char *servers)
{
	memset(server_of, 0, sizeof(server_of));
	memset(local, 0, sizeof(local));
	memset(only_behind_waiter, 0, sizeof(only_behind_waiter));
	memset(verdicts, 0, sizeof(verdicts));
	for (int i = 0; i < MAX_PARTIES; i++)
		deadlocks[i] = NULL;
	memcpy(server_of, servers, strlen(servers));
	owner_find_waiters = find_waiters;
	owner_config = config;
	scene_before_end = owner_interrupt;
	n_victims = 0;
	n_false_deadlocks = 0;
	memset(is_sentenced, 0, sizeof(is_sentenced));
	memset(was_deadlocked, 0, sizeof(was_deadlocked));
	fake_tree_after_multi = note_sentences;
}

void
wait_locally(Party *party, Party *other)
{
	local[index_of(party)] = other;
	local_wait[index_of(party)] = ++last_local_wait;
	only_behind_waiter[index_of(party)] = false;
}

void
wait_behind_waiter(Party *party, Party *other)
{
	wait_locally(party, other);
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

bool
is_busy(const Party *party)
{
	return pending_of(party) || waits_locally_for(party);
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

/* Lists what PostgreSQL's lock table would show of a party; returns the number. */
static int
held_by(const Party *party, ZklHeld *held)
{
	int			n = 0;

	for (const Hold *hold = next_hold(party, NULL); hold && n < MAX_HELD;
		 hold = next_hold(party, hold))
		held[n++] = (ZklHeld)
	{
		owner_key_of(hold->name),
			hold->size > 0 ? ZKL_HELD_PERMIT
			: hold->mode == ZKL_MODE_EXCLUSIVE ? ZKL_HELD_EXCLUSIVE : ZKL_HELD_SHARED
	};
	return n;
}

/* Identifies all waits by which party waits for other. */
static uint64_t
identity_of(const Party *party, const Party *other)
{
	uint64_t	identity = 0;

	for (; party != other; party = local[index_of(party)])
		identity = identity * 1000003 + local_wait[index_of(party)];
	return identity;
}

static int
find_waiters(Party *party, const ZklLocalWaiter **local_waiters)
{
	static ZklHeld held[MAX_PARTIES][MAX_HELD];
	static ZklLocalWaiter waiters[MAX_PARTIES];
	int			n = 0;

	for (int i = 0; i < MAX_PARTIES; i++)
	{
		const Party *last = waits_behind(&parties[i], party);

		if (parties[i].session && server_of[i] == server_of[index_of(party)] && last)
			waiters[n++] = (ZklLocalWaiter)
		{
			.session_id = fake_session_id(parties[i].client),
				.pid = i + 1,
				.identity = identity_of(&parties[i], party),
				.waits_for = "a row",
				.only_for_place = waits_behind_waiter(last),
				.held = held[i],
				.n_held = held_by(&parties[i], held[i])
		};
		if (n > 0 && waiters[n - 1].n_held == 0)
			n--;
	}
	qsort(waiters, (size_t) n, sizeof(ZklLocalWaiter), compare);
	*local_waiters = waiters;
	return n;
}

static ZklDetectorConfig
config(Party *party)
{
	return (ZklDetectorConfig)
	{
		.pid = index_of(party) + 1,
			.server = "server\tof\nmine"
	};
}

const ZklDeadlock *
publish(Party *party)
{
	return owner_run(party);
}

static void
note_verdict(const Party *party, const ZklDeadlock *deadlock)
{
	const ZklDeadlock **kept = &deadlocks[index_of(party)];
	char	   *text = verdicts[index_of(party)];
	int			length = 0;

	if (deadlock == NULL)
		return;
	*kept = deadlock;
	text[0] = '\0';
	for (int i = 0; i < deadlock->n; i++)
		length += sprintf(text + length, "%s%d", i ? ">" : "", deadlock->edges[i].pid);
}

bool
is_victim_now(Party *party)
{
	const ZklDeadlock *deadlock = publish(party);

	note_verdict(party, deadlock);
	return deadlock != NULL;
}

void
publish_at_once(Party *party)
{
	for (int i = 0; i < 20; i++)
	{
		(void) is_victim_now(party);
		fake_run_all();
	}
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

const char *
wait_text(const ZklDeadlockEdge *edge)
{
	static char text[100];

	if (edge->name == NULL)
		return edge->waits_for;
	snprintf(text, sizeof(text), "%s %s", edge->mode == ZKL_MODE_NONE ? "permit"
			 : edge->mode == ZKL_MODE_SHARED ? "shared" : "exclusive", edge->name);
	return text;
}

/* Is it the report of this party, or, if that is NULL, of any? */
static bool
is_report_of(const FakeNode *node, const Party *party)
{
	bool		is_owner = false;

	for (int i = 0; i < MAX_PARTIES; i++)
		if (parties[i].session && (party == NULL || party == &parties[i]))
			is_owner = is_owner || node->owner == fake_session_id(parties[i].client);
	return is_owner && fake_tree_child(node->path, WAITING) && strchr(node->path, '@') == NULL;
}

int
reported_by(const Party *party)
{
	int			n = 0;

	for (int i = 0; i < MAX_PARTIES; i++)
		owner_notice(&parties[i]);
	fake_run_all();
	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		n += is_report_of(node, party);
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
	if (!was_deadlocked[index_of(party)])
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

/* All owners run until nothing more happens without time passing. */
static void
run_owners(void)
{
	for (int step = 0; step < 12; step++)
	{
		for (int i = 0; i < MAX_PARTIES; i++)
			if (parties[i].session == NULL)
				continue;
			else if (zkl_session_state(parties[i].session) == ZKL_SESSION_EXPIRED)
				begin_again(&parties[i]);
			else
				on_error(&parties[i]);
		fake_run_all();
	}
}

bool
deadlocks_end(void)
{
	for (int round = 0; round < 200; round++)
	{
		if (round % 10 == 0)
			heal();
		run_owners();
		if (!any_deadlock())
			return true;
		fake_advance(100);
	}
	return false;
}
