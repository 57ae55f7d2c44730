/*-------------------------------------------------------------------------
 *
 * fuzz_scene.c
 *		Fuzzes the whole recipe layer together with other clients (strangers): an
 *		input is a schedule of actions of the sessions, the network, and strangers,
 *		which write nodes with any names and any data below the locks.
 *
 * The referee of scene.c checks exclusion and tokens.  At the end the strangers
 * leave; then every waiter must be served, and no node of the sessions may be left.
 *
 * A stranger that deletes nodes of the sessions, or creates nodes with numbers that the
 * server did not assign, can break exclusion; exclusion is not checked for inputs that
 * allow this.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"
#include "scene.h"
#include "backend/base/syntax.h"

#define X ZKL_MODE_EXCLUSIVE
#define S ZKL_MODE_SHARED
#define NONE ZKL_MODE_NONE

#define N_PARTIES 3
#define N_NAMES 2
#define MAX_STRANGERS 24
#define MAX_ACTIONS 200
#define STRANGER 7777			/* the session of all strangers */

static const char *const names[N_NAMES] = {"a", "b"};

static bool exclusion_is_checked;	/* exclusion is checked */
static int	n_strangers;
static char strangers[MAX_STRANGERS][640];

static void
act_ask(Input *input, Party *party)
{
	unsigned	how = take(input);
	const char *wanted[N_NAMES];
	ZklMode		modes[N_NAMES];
	int			n = 0;

	if (pending_of(party))
		return;
	for (int i = 0; i < N_NAMES; i++)
	{
		ZklMode		mode = how >> (4 + i) & 1 ? X : S;

		if (how >> i & 1 && mode_of(party, names[i]) < mode)
		{
			wanted[n] = names[i];
			modes[n++] = mode;
		}
	}
	give_up_all(party);			/* the decided requests */
	if (n > 0)
		ask_all(party, n, wanted, modes, how & 8);
}

static void
act_reduce(Input *input, Party *party)
{
	unsigned	how = take(input);
	const char *name = names[how % N_NAMES];

	if (!pending_of(party) && mode_of(party, name) != NONE)
		reduce(party, name, how & 4 && mode_of(party, name) == X ? S : NONE);
}

static void
act_network(Input *input, Party *party)
{
	static const FakeFault faults[] = {
		FAULT_DROP, FAULT_APPLY_DROP, FAULT_APPLY_ALL_DROP, FAULT_DELAY,
		FAULT_REFUSE, FAULT_THROTTLE, FAULT_FORGET, FAULT_EXPIRE,
	};
	unsigned	how = take(input);

	switch (how % 4)
	{
		case 0:
			fake_disconnect(party->client);
			break;
		case 1:
			fake_fail_attempt(party->client);
			break;
		case 2:
			fake_fault(party->client, fake_counted(party->client) + 1 + (int) (how >> 5 & 3),
					   faults[how >> 2 & 7]);
			break;
		case 3:
			fake_release(party->client);
			fake_connect(party->client);
	}
}

/* Composes a stranger's node name up to the number: like zklock's, or any text. */
static void
take_prefix(Input *input, char *out, size_t size)
{
	static const char *const infixes[] = {
		"__READ__", "__WRIT__", "lock-", "__rlock__", "__lock__", "lease-", "", "_",
	};
	unsigned	how = take(input);
	const Party *party = &parties[how % N_PARTIES];
	size_t		n;

	out[0] = '\0';
	if (how & 8)
		snprintf(out, size, "_c_%08x-%04x-%04x-0000-%012x-",
				 (unsigned) (fake_session_id(party->client) >> 32),
				 (unsigned) (fake_session_id(party->client) >> 16 & 0xffff),
				 (unsigned) (fake_session_id(party->client) & 0xffff), 0xdeadu);
	else if (how & 16)
		strcpy(out, "00112233445566778899aabbccddeeff");
	n = strlen(out);
	take_text(input, out + n, size - n - 16, '/');

	/* A dash before the server's number would negate it. */
	n = strlen(out);
	if (n > 0 && out[n - 1] == '-')
		out[n - 1] = '_';
	strcat(out, infixes[how >> 5]);
}

/* Creates a node with the server's number, or, if exclusion is not checked, with any number. */
static void
act_stranger(Input *input)
{
	unsigned	how = take(input);
	const char *parent = path_of(names[how % N_NAMES]);
	ZklCreateKind kind = how & 2 ? ZKL_CREATE_EPHEMERAL_SEQUENTIAL : ZKL_CREATE_EPHEMERAL;
	char		prefix[300];
	char		path[400];
	char		data[64];
	char	   *made;
	int64_t		unused;

	take_prefix(input, prefix, sizeof(prefix));
	take_text(input, data, sizeof(data), '\0');
	if (n_strangers == MAX_STRANGERS)
		return;
	if (how & 2)
		snprintf(path, sizeof(path), "%s/%s", parent, prefix);
	else if (!exclusion_is_checked)
		snprintf(path, sizeof(path), "%s/%s%010d", parent, prefix, take_number(input));
	else
		snprintf(path, sizeof(path), "%s/%s_", parent, prefix);
	fake_tree_create(path, data, (int) strlen(data), kind, STRANGER, &made, &unused);
	if (made)
		snprintf(strangers[n_strangers++], sizeof(strangers[0]), "%s", made);
	free(made);
}

static void
act_stranger_goes(Input *input)
{
	int			i = (int) take(input);

	if (n_strangers == 0)
		return;
	i %= n_strangers;
	fake_tree_delete(strangers[i]);
	memmove(strangers[i], strangers[--n_strangers], sizeof(strangers[i]));
}

static void
act_data(Input *input)
{
	char		data[600];
	unsigned	which = take(input);

	take_text(input, data, sizeof(data), '\0');
	if (which % 4 == 0)			/* longer than what the recipe layer keeps */
		for (size_t n = strlen(data); n + 1 < sizeof(data); n++)
		{
			data[n] = (char) (which | 0x80);
			data[n + 1] = '\0';
		}
	if (n_strangers > 0)
		fake_tree_set(strangers[which % (unsigned) n_strangers], data);
}

/* Another client deletes a node of the sessions. */
static void
act_removal(Input *input)
{
	const char *path = node_of(&parties[take(input) % N_PARTIES], NULL);

	if (!exclusion_is_checked && path[0] != '\0')
		fake_tree_delete(path);
}

static void
act(Input *input)
{
	unsigned	kind = take(input);
	Party	   *party = &parties[kind % N_PARTIES];

	if (zkl_session_state(party->session) == ZKL_SESSION_EXPIRED)
		scene_rejoin(party);
	else if (kind < 48)
		act_ask(input, party);
	else if (kind < 64)
		act_reduce(input, party);
	else if (kind < 70)
		zkl_session_confirm(party->session, false);
	else if (kind < 76 && pending_of(party))
		forget(pending_of(party));
	else if (kind < 92)
		act_network(input, party);
	else if (kind < 100)
		fake_advance((int64_t) take(input) * 8);
	else if (kind < 104)
		fake_tree_reap();
	else if (kind < 124)
		act_stranger(input);
	else if (kind < 132)
		act_stranger_goes(input);
	else if (kind < 138)
		act_data(input);
	else if (kind < 144)
		act_removal(input);
	else if (kind < 152)
		fake_run_all();
	else if (kind < 200)
		fake_apply(party->client);
	else
		fake_deliver(party->client);
}

/* Checks the recipe layer's information about the blocker. */
static void
check_blockers(void)
{
	for (int i = 0; i < N_PARTIES; i++)
	{
		Ask		   *ask = pending_of(&parties[i]);
		ZklRequestInfo info;

		if (ask == NULL)
			continue;
		zkl_request_info(ask->request, &info);
		must(memchr(info.blocker, '\0', sizeof(info.blocker)), "the blocker's name has no end");
		must(info.culprit >= -1 && info.culprit < ask->n, "culprit %d", info.culprit);
		must(!info.blocked || info.was_blocked || info.blocker[0] == '\0', "a blocker without a wait");
		zklock_make_plain(info.blocker);
		for (const char *p = info.blocker; *p; p++)
			must(*p >= 0x20 && *p <= 0x7e, "byte %d in the log", *p);
	}
}

static void
strangers_leave(void)
{
	while (n_strangers > 0)
		fake_tree_delete(strangers[--n_strangers]);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input		input = {data, size};
	unsigned	flags = take(&input);

	exclusion_is_checked = flags % 4 != 0;
	n_strangers = 0;
	scene_begin(0);
	scene_config.sequence_limit = flags & 16 ? 4 + (int32_t) (flags >> 5) : 0;
	for (int i = 0; i < N_PARTIES; i++)
	{
		scene_config.node_names = flags & 4 && i == 1 ? ZKL_NODE_NAMES_KAZOO : ZKL_NODE_NAMES_CURATOR;
		scene_join(&parties[i]);
	}
	for (int i = 0; i < MAX_ACTIONS && input.left > 0; i++)
	{
		act(&input);
		check_blockers();
	}
	strangers_leave();
	must(scene_settles(), "a session waits, but no other session blocks it");
	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		must(node->owner == 0, "a node is left: %s", node->path);
	if (!exclusion_is_checked)
		scene_without_referee();
	must(objections() == 0, "%s", first_objection());
	scene_end(NULL);
	return 0;
}
