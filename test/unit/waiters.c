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

#include "node.h"
#include "waiters.h"

static char server_of[MAX_PARTIES];
static Party *local[MAX_PARTIES];
static char verdicts[MAX_PARTIES][128];
static int	n_victims;
static int	n_false_alarms;

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
	memset(verdicts, 0, sizeof(verdicts));
	memcpy(server_of, servers, strlen(servers));
	n_victims = 0;
	n_false_alarms = 0;
}

void
wait_locally(Party *party, Party *other)
{
	local[index_of(party)] = other;
}

Party *
waits_locally_for(const Party *party)
{
	return local[index_of(party)];
}


/*
 * Telling
 */

static bool
waits_behind(const Party *party, const Party *other)
{
	for (int i = 0; i < MAX_PARTIES && party; i++)
	{
		party = local[index_of(party)];
		if (party == other)
			return true;
	}
	return false;
}

static int
compare(const void *a, const void *b)
{
	uint64_t	x = (uint64_t) ((const ZklDependent *) a)->session_id;
	uint64_t	y = (uint64_t) ((const ZklDependent *) b)->session_id;

	return x < y ? -1 : x > y;
}

const ZklDeadlock *
tell(Party *party)
{
	Ask		   *ask = pending_of(party);
	const char *locks[MAX_WISHES];
	ZklDependent dependents[MAX_PARTIES];
	ZklTale		tale = {.instance = (uint64_t) server_of[index_of(party)],
		.pid = index_of(party) + 1, .server = "server\tof\nmine",
	.locks = locks, .dependents = dependents};
	ZklRequestInfo info;

	if (ask == NULL)
		return NULL;
	zkl_request_info(ask->request, &info);
	tale.question = info.question;
	if (!info.blocked)
		return NULL;
	for (int i = 0; i < ask->n; i++)
		locks[i] = ask->names[i];
	for (int i = 0; i < MAX_PARTIES; i++)
		if (parties[i].session && server_of[i] == server_of[index_of(party)] &&
			waits_behind(&parties[i], party))
			dependents[tale.n_dependents++] = (ZklDependent)
		{
			fake_session_id(parties[i].client), i + 1, "a row", false
		};
	qsort(dependents, (size_t) tale.n_dependents, sizeof(ZklDependent), compare);
	return zkl_request_tell(ask->request, &tale);
}

static void
note_verdict(const Party *party, const ZklDeadlock *deadlock)
{
	char	   *text = verdicts[index_of(party)];
	int			length = 0;

	text[0] = '\0';
	for (int i = 0; deadlock && i < deadlock->n; i++)
		length += sprintf(text + length, "%s%d", i ? ">" : "", deadlock->edges[i].pid);
}

void
tell_all(void)
{
	for (int round = 0; round < 12; round++)
	{
		for (int i = 0; i < MAX_PARTIES; i++)
			if (parties[i].session)
			{
				const ZklDeadlock *deadlock = tell(&parties[i]);

				if (deadlock)
					note_verdict(&parties[i], deadlock);
			}
		fake_run_all();
		fake_advance(100);
	}
}

const char *
verdict_of(const Party *party)
{
	return verdicts[index_of(party)];
}

int
told_by(const Party *party)
{
	int			n = 0;

	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		if (fake_tree_child(node->path, WAITS))
			n += party == NULL || node->owner == fake_session_id(party->client);
	return n;
}


/*
 * The truth
 */

static Party *
owner_of(const FakeNode *node)
{
	for (int i = 0; i < MAX_PARTIES; i++)
		if (parties[i].session && node->owner == fake_session_id(parties[i].client))
			return &parties[i];
	return NULL;
}

/* Is there a node of somebody else's that must go before this one is first? */
static bool
is_in_the_way(const FakeNode *node, const ZklContender *own, const char *own_name,
			  const char *lock, bool upgrade)
{
	const char *name = fake_tree_child(node->path, lock);
	ZklContender c;

	if (name == NULL || !zkl_parse_child(name, &c) || c.owner == own->owner ||
		!zkl_is_before(c.number, name, own->number, own_name))
		return false;
	if (!upgrade)
		return c.writer || own->writer;
	if (c.writer)
		return false;

	/* A sharer before all writers. */
	for (FakeNode *other = fake_tree_first(); other; other = other->next)
	{
		const char *other_name = fake_tree_child(other->path, lock);
		ZklContender w;

		if (other_name && zkl_parse_child(other_name, &w) && w.writer &&
			w.owner != own->owner &&
			zkl_is_before(w.number, other_name, c.number, name))
			return false;
	}
	return true;
}

/* Does the one wait for the other by any name of its request? */
static bool
waits_remotely(const Party *party, const Party *other)
{
	Ask		   *ask = pending_of(party);

	for (int i = 0; ask && i < ask->n; i++)
	{
		char		lock[300];

		snprintf(lock, sizeof(lock), "%s/%s", SCENE_LOCKS, ask->names[i]);
		for (FakeNode *mine = fake_tree_first(); mine; mine = mine->next)
		{
			const char *name = fake_tree_child(mine->path, lock);
			ZklContender own;
			bool		upgrade = mode_of(party, ask->names[i]) == ZKL_MODE_SHARED;

			if (name == NULL || owner_of(mine) != party ||
				!zkl_parse_child(name, &own) || (upgrade && !own.writer))
				continue;
			for (FakeNode *node = fake_tree_first(); node; node = node->next)
				if (owner_of(node) == other &&
					is_in_the_way(node, &own, name, lock, upgrade))
					return true;
		}
	}
	return false;
}

static bool
waits_for(const Party *party, const Party *other)
{
	return party != other &&
		(waits_remotely(party, other) || local[index_of(party)] == other);
}

/* Locks only, so a circle is a deadlock. */
bool
is_truly_deadlocked(const Party *party)
{
	bool		edges[MAX_PARTIES][MAX_PARTIES];
	bool		reached[MAX_PARTIES] = {false};

	for (int i = 0; i < MAX_PARTIES; i++)
		for (int j = 0; j < MAX_PARTIES; j++)
			edges[i][j] = parties[i].session && parties[j].session &&
				waits_for(&parties[i], &parties[j]);
	for (int round = 0; round < MAX_PARTIES; round++)
		for (int i = 0; i < MAX_PARTIES; i++)
			for (int j = 0; j < MAX_PARTIES; j++)
				if (edges[i][j] && (i == index_of(party) || reached[i]))
					reached[j] = true;
	return reached[index_of(party)];
}


/*
 * Giving way
 */

int
victims(void)
{
	return n_victims;
}

int
false_alarms(void)
{
	return n_false_alarms;
}

static void
let_rows_go(const Party *party)
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
	let_rows_go(party);
}

void
begin_anew(Party *party)
{
	let_rows_go(party);
	wait_locally(party, NULL);
	scene_rejoin(party);
}

void
heed(Party *party)
{
	zkl_session_clear_wakeup(party->session);
	if (tell(party) == NULL)
		return;
	if (!is_truly_deadlocked(party))
	{
		n_false_alarms++;
		diag("party %d is told of a deadlock that is none", index_of(party));
	}
	n_victims++;
	end_transaction(party);
}

void
wake_owners(void)
{
	for (int i = 0; i < MAX_PARTIES; i++)
	{
		struct pollfd fd = {.events = POLLIN};

		if (parties[i].session == NULL)
			continue;
		fd.fd = zkl_session_fd(parties[i].session);
		if (poll(&fd, 1, 0) > 0)
			heed(&parties[i]);
	}
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
				begin_anew(&parties[i]);
			else
				heed(&parties[i]);
		fake_run_all();
	}
	return false;
}
