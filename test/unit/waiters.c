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
static bool in_line[MAX_PARTIES];
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
	memset(in_line, 0, sizeof(in_line));
	memset(verdicts, 0, sizeof(verdicts));
	memcpy(server_of, servers, strlen(servers));
	n_victims = 0;
	n_false_alarms = 0;
}

void
wait_locally(Party *party, Party *other)
{
	local[index_of(party)] = other;
	in_line[index_of(party)] = false;
}

void
wait_in_line(Party *party, Party *other)
{
	local[index_of(party)] = other;
	in_line[index_of(party)] = true;
}

bool
waits_in_line(const Party *party)
{
	return local[index_of(party)] && in_line[index_of(party)];
}

Party *
waits_locally_for(const Party *party)
{
	return local[index_of(party)];
}


/*
 * Telling
 */

/* Perhaps through others; the last one of them is returned, or NULL. */
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
	{
		const Party *last = waits_behind(&parties[i], party);

		if (parties[i].session && server_of[i] == server_of[index_of(party)] && last)
			dependents[tale.n_dependents++] = (ZklDependent)
		{
			fake_session_id(parties[i].client), i + 1, "a row", waits_in_line(last)
		};
	}
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
