/*-------------------------------------------------------------------------
 *
 * fuzz_waits.c
 *		Fuzzes deadlock detection together with other clients (strangers): an input
 *		is a schedule of sessions that lock, wait for each other's rows and report
 *		long waits, of network faults, and of strangers, which create nodes with any
 *		names and data below <root>/waits and in the queues, and delete nodes of the
 *		sessions.
 *
 * After the strangers have left, every deadlock must end by a victim, and no node of
 * the sessions may be left.  There must be no victim without a deadlock; this is not
 * checked for inputs in which strangers report waits in the name of the sessions, or
 * delete the sessions' nodes in a queue.
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>

#include "fuzz.h"
#include "recipe/queue/node.h"
#include "recipe/deadlock/wait_name.h"
#include "waiters.h"

#define N_PARTIES 4
#define N_NAMES 2
#define N_IDS (N_PARTIES + 2)
#define MAX_ACTIONS 200
#define STRANGER 7777			/* the session of all strangers */

static const char *const names[N_NAMES] = {"a", "b"};

static bool victims_are_checked;
static bool corrupts_reports;	/* strangers overwrite the data of all wait reports */
static char corrupt_data[300];

/* The ids of the sessions, and two that belong to no session. */
static uint64_t
take_id(Input *input)
{
	unsigned	i = take(input) % N_IDS;

	return i < N_PARTIES ? (uint64_t) fake_session_id(parties[i].client) : 0x7000 + i;
}

static bool
is_ours(uint64_t id)
{
	for (int i = 0; i < N_PARTIES; i++)
		if (id == (uint64_t) fake_session_id(parties[i].client))
			return true;
	return false;
}


/*
 * The sessions
 */

static bool
is_busy(Party *party)
{
	return pending_of(party) || waits_locally_for(party);
}

static void
act_ask(Input *input, Party *party)
{
	unsigned	how = take(input);
	const char *wanted[N_NAMES];
	ZklMode		modes[N_NAMES];
	int			n = 0;

	for (int i = 0; i < N_NAMES; i++)
	{
		ZklMode		mode = how >> (4 + i) & 1 ? ZKL_MODE_SHARED : ZKL_MODE_EXCLUSIVE;

		if (how >> i & 1 && mode_of(party, names[i]) < mode)
		{
			wanted[n] = names[i];
			modes[n++] = mode;
		}
	}
	give_up_all(party);
	if (n > 0)
		ask_all(party, n, wanted, modes, false);
}

/* PostgreSQL itself finds cycles on one server. */
static void
act_row(Party *party)
{
	Party	   *other = &parties[(party - parties + 2) % N_PARTIES];

	if (waits_locally_for(other) != party)
		wait_locally(party, other);
}

static void
act_network(Input *input, Party *party)
{
	static const FakeFault faults[] = {
		FAULT_DROP, FAULT_APPLY_DROP, FAULT_APPLY_ALL_DROP, FAULT_DELAY,
		FAULT_REFUSE, FAULT_THROTTLE, FAULT_FORGET,
	};
	unsigned	how = take(input);

	if (how % 4 == 0)
		fake_disconnect(party->client);
	else if (how % 4 == 1)
		fake_fault(party->client, fake_counted(party->client) + 1 + (int) (how >> 5 & 3),
				   faults[(how >> 2 & 7) % (sizeof(faults) / sizeof(*faults))]);
	else
	{
		fake_release(party->client);
		fake_connect(party->client);
	}
}


/*
 * The strangers
 */

static void
make(const char *path, const char *data, ZklCreateKind kind)
{
	char	   *made;
	int64_t		unused;

	fake_tree_create(path, data, (int) strlen(data), kind, STRANGER, &made, &unused);
	free(made);
}

/* Composes a report name from ids, with some arbitrary text. */
static void
take_wait(Input *input, char *out, size_t size)
{
	unsigned	how = take(input);
	size_t		n = 0;
	char		text[40];

	if (how & 64)
	{
		take_text(input, out, size, '/');
		return;
	}
	n += (size_t) snprintf(out, size, "%" PRIx64 ".%x.%x.%s.", take_id(input), how & 1,
						   how >> 1 & 3, how & 8 ? "c" : how & 16 ? "wp" : "w");
	for (unsigned i = 0; i < (how >> 2 & 3); i++)
		n += (size_t) snprintf(out + n, size - n, "%s%" PRIx64, i ? "," : "", take_id(input));
	n += (size_t) snprintf(out + n, size - n, ".");
	for (unsigned i = 0; i < (how >> 5 & 1); i++)
		n += (size_t) snprintf(out + n, size - n, "%" PRIx64, take_id(input));
	take_text(input, text, how & 128 ? sizeof(text) : 1, '/');
	snprintf(out + n, size - n, "%s.", text);
}

/* Does the name report a wait of one of the sessions? */
static bool
is_in_our_name(const char *prefix)
{
	char		name[700];
	const char *child = name;
	ZklWaitReports reports;
	bool		does = false;

	snprintf(name, sizeof(name), "%s0000000000", prefix);
	must(zkl_reports_read(&child, 1, &reports), "out of memory");
	for (int i = 0; i < reports.n_node_sets; i++)
		does = does || is_ours(reports.node_sets[i].waiter);
	for (int i = 0; i < reports.n; i++)
		does = does || is_ours(reports.nodes[i].session);
	zkl_reports_free(&reports);
	return does;
}

static void
take_data(Input *input, char *out, size_t size)
{
	static const char *const forms[] = {
		"%" PRIx64 "\t1\ts\nx\t1\t7\texclusive lock \"a\"",
		"1\t2\ts\nx\t2\t7\tx\np\t1\t7\tx\nd\t%" PRIx64 "\t-1\ta row\ts61",
		"1\t2\ts\nd\t%" PRIx64 "\t-1\ta row\nd\t\t",
		"\n\t\nx\n%" PRIx64 "\nx\t\t\t\n",
	};
	unsigned	how = take(input);
	size_t		n = 0;

	out[0] = '\0';
	if (how & 1)
		n = (size_t) snprintf(out, size, forms[how >> 1 & 3], take_id(input));
	take_text(input, out + n, size - n, '\0');
}

static void
act_stranger_waits(Input *input)
{
	char		prefix[600];
	char		path[700];
	char		data[300];

	take_wait(input, prefix, sizeof(prefix));
	take_data(input, data, sizeof(data));
	if (victims_are_checked && is_in_our_name(prefix))
		return;
	make(WAITS, "", ZKL_CREATE_PERSISTENT);
	snprintf(path, sizeof(path), WAITS "/%s", prefix);
	make(path, data, ZKL_CREATE_EPHEMERAL_SEQUENTIAL);
}

/* Creates a queue node whose name shows an owner that the sessions parse, or none. */
static void
act_stranger_queues(Input *input)
{
	static const char *const infixes[] = {"__READ__", "__WRIT__", "lock-", "__lock__"};
	unsigned	how = take(input);
	uint64_t	id = take_id(input);
	char		text[40];
	char		name[150];
	char		path[300];
	ZklContender c;

	take_text(input, text, sizeof(text), '/');
	snprintf(name, sizeof(name), "_c_%08x-%04x-%04x-0000-%012x-%s%s", (unsigned) (id >> 32),
			 (unsigned) (id >> 16 & 0xffff), (unsigned) (id & 0xffff), 0xdeadu,
			 how & 8 ? text : "", infixes[how >> 1 & 3]);
	snprintf(path, sizeof(path), SCENE_LOCKS "/%s/%s", names[how & 1],
			 how & 16 ? name : name + 40);
	strcat(name, "0000000000");
	if (!victims_are_checked || !zkl_parse_child(how & 16 ? name : name + 40, &c) || !c.has_owner)
		make(path, "stranger", ZKL_CREATE_EPHEMERAL_SEQUENTIAL);
}

/* Deletes or overwrites another client's node: a wait report, or any node. */
static void
act_meddle(Input *input)
{
	unsigned	how = take(input);
	unsigned	which = take(input);
	char		path[70000];
	char		data[300];

	take_data(input, data, sizeof(data));
	path[0] = '\0';
	for (FakeNode *node = fake_tree_first(); node; node = node->next)
	{
		bool		is_wait = fake_tree_child(node->path, WAITS) != NULL;

		if (node->owner == 0 || (victims_are_checked && !is_wait && node->owner != STRANGER))
			continue;
		if (victims_are_checked && how & 1 && node->owner != STRANGER)
			continue;			/* the data of its own report */
		if (path[0] == '\0' || which-- > 0)
			snprintf(path, sizeof(path), "%s", node->path);
	}
	if (path[0] != '\0' && how & 1)
		fake_tree_set(path, data);
	else if (path[0] != '\0')
		fake_tree_delete(path);
}

/* Overwrites reports before any session reads them. */
static void
corrupt_reports(void)
{
	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		if (fake_tree_child(node->path, WAITS) &&
			(node->data_len != (int) strlen(corrupt_data) ||
			 memcmp(node->data, corrupt_data, strlen(corrupt_data)) != 0))
			fake_tree_set(node->path, corrupt_data);
}

/* Deletes what the strangers wrote; the owner of a report treats this as a probe. */
static void
strangers_leave(void)
{
	FakeNode   *node = fake_tree_first();

	while (node)
		if (node->owner == STRANGER || (!victims_are_checked && fake_tree_child(node->path, WAITS)))
		{
			char		path[1000];

			snprintf(path, sizeof(path), "%s", node->path);
			fake_tree_delete(path);
			node = fake_tree_first();
		}
		else
			node = node->next;
}


static void
act(Input *input)
{
	unsigned	kind = take(input);
	Party	   *party = &parties[kind % N_PARTIES];

	if (zkl_session_state(party->session) == ZKL_SESSION_EXPIRED)
		begin_again(party);
	else if (kind < 40)
	{
		if (!is_busy(party))
			act_ask(input, party);
	}
	else if (kind < 52)
	{
		if (!is_busy(party))
			act_row(party);
	}
	else if (kind < 60)
	{
		if (!is_truly_deadlocked(party))
			end_transaction(party);
	}
	else if (kind < 72)
		act_network(input, party);
	else if (kind < 84)
		fake_advance((int64_t) take(input) * 8);
	else if (kind < 108)
		act_stranger_waits(input);
	else if (kind < 120)
		act_stranger_queues(input);
	else if (kind < 136)
		act_meddle(input);
	else if (kind < 168)
		on_error(party);
	else if (kind < 184)
		fake_run_all();
	else if (kind < 216)
		fake_apply(party->client);
	else
		fake_deliver(party->client);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input		input = {data, size};

	scene_begin(N_PARTIES);
	waiters_begin("abab");
	victims_are_checked = take(&input) % 4 != 0;
	corrupts_reports = !victims_are_checked && take(&input) % 2 != 0;
	if (corrupts_reports)
		take_data(&input, corrupt_data, sizeof(corrupt_data));
	for (int i = 0; i < MAX_ACTIONS && input.left > 0; i++)
	{
		act(&input);
		if (corrupts_reports)
			corrupt_reports();
	}
	strangers_leave();
	must(deadlocks_end(), "a deadlock is left");
	for (int i = 0; i < N_PARTIES; i++)
		end_transaction(&parties[i]);
	must(scene_settles(), "a session waits, but no other session blocks it");
	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		must(node->owner == 0, "a node is left: %s", node->path);
	must(!victims_are_checked || false_deadlocks() == 0, "a false alarm");
	scene_end(NULL);
	return 0;
}
