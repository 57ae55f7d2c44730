/*-------------------------------------------------------------------------
 *
 * test_graph.c
 *		What is a deadlock, and which sessions are its members.
 *
 * Graphs by hand, and many random ones against an oracle that tries all sets of
 * participants; and the contents of the reports' names.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe/deadlock/graph.h"
#include "tap.h"
#include "recipe/deadlock/wait_name.h"

#define MAX_NODE_SETS 24
#define MAX_IDS 8

#ifdef SHORT_RUN
#define N_GRAPHS 5000
#else
#define N_GRAPHS 60000
#endif

static const ZklCircle everybody = {NULL, 0};

static ZklNodeSet node_sets[MAX_NODE_SETS];
static uint64_t any_of[MAX_NODE_SETS][MAX_IDS];
static int	n_node_sets;

/* "1>2 2>3+4": 1 waits for 2; 2 waits for 3 or 4.  Participants are digits. */
static void
graph(const char *text)
{
	memset(node_sets, 0, sizeof(node_sets));
	n_node_sets = 0;
	for (const char *p = text; *p;)
	{
		ZklNodeSet *node_set = &node_sets[n_node_sets];

		node_set->waiter = (uint64_t) (*p - '0');
		node_set->any_of = any_of[n_node_sets++];
		p += 2;
		while (*p && *p != ' ')
		{
			any_of[n_node_sets - 1][node_set->n++] = (uint64_t) (*p++ - '0');
			if (*p == '+')
				p++;
		}
		while (*p == ' ')
			p++;
	}
}

/* The members of the deadlock as digits. */
static const char *
deadlock_of(int me, ZklCircle within)
{
	static char text[64];
	uint64_t   *members;
	int			n = zkl_find_deadlock(node_sets, n_node_sets, (uint64_t) me, within, &members);
	int			length = 0;

	text[0] = '\0';
	for (int i = 0; i < n; i++)
		length += sprintf(text + length, "%" PRIu64, members[i]);
	free(members);
	return text;
}

static void
is_deadlock(const char *text, int me, const char *expected, const char *name)
{
	graph(text);
	is_str(deadlock_of(me, everybody), expected, "%s", name);
}

static void
test_by_hand(void)
{
	is_deadlock("", 1, "", "no waits");
	is_deadlock("1>2 2>3 3>4", 1, "", "a chain");
	is_deadlock("1>2 2>1", 1, "12", "two sessions that wait for each other");
	is_deadlock("1>2 2>3 3>1", 2, "123", "a cycle of three");
	is_deadlock("1>2 2>3 3>2", 1, "", "a session that waits for a member of a deadlock is not a member");
	is_deadlock("1>2 2>3 3>2", 2, "23", "the sessions in the cycle are members");
	is_deadlock("1>2 2>1 2>3", 1, "12", "a member that also waits for a session outside");
	is_deadlock("1>2+3 2>1", 1, "", "a wait for any of two, one of which can proceed");
	is_deadlock("1>2+3 2>1 3>1", 1, "123", "a wait for any of two, neither of which can proceed");
	is_deadlock("1>2+3 2>1 3>4 4>3", 1, "",
				"a wait for any of two, one of which is in another deadlock, which will end");
	is_deadlock("1>2+3 2>1 3>4 4>3", 3, "34", "the other deadlock is found");
	is_deadlock("1>2+3 1>4 4>1 2>1", 1, "14", "a wait for any of two, and another wait");
	is_deadlock("1>2 2>3+4 3>1 4>5", 1, "", "a wait for any of two within a cycle");
	is_deadlock("1>2 2>1 3>4 4>3", 3, "34", "two separate deadlocks");
	is_deadlock("1>2 2>1 2>3 3>2", 1, "123", "two cycles with a common member are one deadlock");
	is_deadlock("1>1", 1, "1", "a session that waits for itself");
}

static void
test_within(void)
{
	uint64_t	ids[] = {1, 2};
	ZklCircle	circle = {ids, 2};

	graph("1>2 2>1");
	is_str(deadlock_of(1, circle), "12", "within a circle: all members are in the circle");
	graph("1>2 2>3 3>1");
	is_str(deadlock_of(1, circle), "", "a member outside of the circle is taken to be able to proceed");
	circle.n = 0;
	is_str(deadlock_of(1, circle), "", "an empty circle has no deadlock");
}

static void
test_cycle(void)
{
	uint64_t	ids[] = {1, 2, 3, 4};
	ZklCircle	circle = {ids, 4};
	int		   *path;

	graph("1>2 2>3 3>4 4>1 2>4");
	is_int(zkl_find_cycle(node_sets, n_node_sets, 1, circle, &path), 3, "the shortest cycle is found");
	ok(path[0] == 0 && path[1] == 4 && path[2] == 3, "the cycle leads from the first session back to the first");
	free(path);
	graph("1>2 2>3");
	is_int(zkl_find_cycle(node_sets, n_node_sets, 1, circle, &path), -1, "a chain has no cycle");
	graph("1>1");
	circle.n = 1;
	is_int(zkl_find_cycle(node_sets, n_node_sets, 1, circle, &path), 1, "a session that waits for itself is a cycle of one");
	free(path);
}


/*
 * Random graphs.  A set has one bit for each participant.
 */

static unsigned state;

static int
dice(int n)
{
	return (int) (rand_r(&state) / 7 % (unsigned) n);
}

static void
random_graph(void)
{
	int			n = 2 + dice(MAX_IDS - 1);
	int			count = 1 + dice(n * 2);

	n_node_sets = 0;
	memset(node_sets, 0, sizeof(node_sets));
	for (int i = 0; i < count && i < MAX_NODE_SETS; i++)
	{
		ZklNodeSet *node_set = &node_sets[n_node_sets];

		node_set->waiter = (uint64_t) dice(n);
		node_set->any_of = any_of[n_node_sets];
		node_set->n = dice(3) ? 1 : dice(4);
		for (int j = 0; j < node_set->n; j++)
			any_of[n_node_sets][j] = (uint64_t) dice(n);
		n_node_sets++;
	}
}

static bool
has(unsigned set, uint64_t id)
{
	return set >> id & 1;
}

/* Are all members of the node set in the set, so that none can proceed? */
static bool
is_dead_in(const ZklNodeSet *node_set, unsigned set)
{
	for (int j = 0; j < node_set->n; j++)
		if (!has(set, node_set->any_of[j]))
			return false;
	return node_set->n > 0;
}

static bool
all_are_stuck(unsigned set)
{
	for (uint64_t v = 0; v < MAX_IDS; v++)
	{
		bool		stuck = !has(set, v);

		for (int i = 0; i < n_node_sets && !stuck; i++)
			stuck = node_sets[i].waiter == v && is_dead_in(&node_sets[i], set);
		if (!stuck)
			return false;
	}
	return true;
}

/* Which participants are reached from v within the set? */
static unsigned
reach(unsigned set, uint64_t v)
{
	unsigned	reached = 0;

	for (int round = 0; round < MAX_IDS; round++)
		for (int i = 0; i < n_node_sets; i++)
			if ((node_sets[i].waiter == v || has(reached, node_sets[i].waiter)) &&
				has(set, node_sets[i].waiter) && is_dead_in(&node_sets[i], set))
				for (int j = 0; j < node_sets[i].n; j++)
					reached |= 1u << node_sets[i].any_of[j];
	return reached;
}

static bool
is_one_deadlock(unsigned set)
{
	if (!all_are_stuck(set))
		return false;
	for (uint64_t v = 0; v < MAX_IDS; v++)
		if (has(set, v) && (reach(set, v) & set) != set)
			return false;
	return true;
}

/* The union of all deadlocks that "me" is in, which is a deadlock, too. */
static unsigned
oracle(uint64_t me, unsigned within)
{
	unsigned	all = 0;

	for (unsigned set = 1; set < 1u << MAX_IDS; set++)
		if (has(set, me) && (set & ~within) == 0 && is_one_deadlock(set))
			all |= set;
	return all;
}

static unsigned
answer(uint64_t me, ZklCircle within)
{
	uint64_t   *members;
	unsigned	set = 0;
	int			n = zkl_find_deadlock(node_sets, n_node_sets, me, within, &members);

	for (int i = 0; i < n; i++)
		set |= 1u << members[i];
	free(members);
	return set;
}

/* Is the path a cycle from me to me through these members? */
static bool
is_cycle(uint64_t me, unsigned members)
{
	uint64_t	ids[MAX_IDS];
	ZklCircle	circle = {ids, 0};
	int		   *path;
	int			n;
	bool		good = true;

	for (uint64_t v = 0; v < MAX_IDS; v++)
		if (has(members, v))
			ids[circle.n++] = v;
	n = zkl_find_cycle(node_sets, n_node_sets, me, circle, &path);
	for (int i = 0; i < n; i++)
	{
		const ZklNodeSet *node_set = &node_sets[path[i]];
		uint64_t	next = i + 1 < n ? node_sets[path[i + 1]].waiter : me;
		bool		found = false;

		for (int j = 0; j < node_set->n; j++)
			found = found || node_set->any_of[j] == next;
		good = good && found && has(members, node_set->waiter) &&
			(i > 0 || node_set->waiter == me);
	}
	free(path);
	return n > 0 && good;
}

static void
test_random(void)
{
	int			wrong = 0;
	int			deadlocks = 0;

	for (unsigned seed = 1; seed <= N_GRAPHS && wrong < 3; seed++)
	{
		uint64_t	ids[MAX_IDS];
		ZklCircle	circle = {ids, 0};
		unsigned	within = 0;
		uint64_t	me;
		unsigned	expected;

		state = seed * 2654435761u + 1;
		random_graph();
		me = node_sets[dice(n_node_sets)].waiter;
		for (uint64_t v = 0; v < MAX_IDS; v++)
			if (dice(4) > 0)
			{
				ids[circle.n++] = v;
				within |= 1u << v;
			}
		expected = oracle(me, ~0u);
		deadlocks += expected != 0;
		if (answer(me, everybody) != expected ||
			answer(me, circle) != oracle(me, within) ||
			(expected && !is_cycle(me, expected)))
		{
			wrong++;
			diag("graph %u, participant %" PRIu64, seed, me);
		}
	}
	is_int(wrong, 0, "%d random graphs give the same result as trying all sets", N_GRAPHS);
	ok(deadlocks > N_GRAPHS / 10 && deadlocks < N_GRAPHS * 9 / 10,
	   "some random graphs have a deadlock, and some have none");
}


/*
 * Names of reports
 */

static ZklWaitReports reports;

static void
read_names(int n, const char *const *names)
{
	zkl_reports_free(&reports);
	ok(zkl_reports_read(names, n, &reports), "%d names are read", n);
}

static const char *
node_sets_text(void)
{
	static char text[512];
	int			length = 0;

	text[0] = '\0';
	for (int i = 0; i < reports.n_node_sets; i++)
	{
		const ZklNodeSet *node_set = &reports.node_sets[i];

		length += sprintf(text + length, "%s%" PRIx64 ">", i ? " " : "", node_set->waiter);
		for (int j = 0; j < node_set->n; j++)
			length += sprintf(text + length, "%s%" PRIx64, j ? "+" : "", node_set->any_of[j]);
		length += sprintf(text + length, "(%" PRIx64 ")",
						  reports.nodes[node_set->source].session);
	}
	return text;
}

static void
test_names(void)
{
	read_names(2, (const char *[]) {
									"1000000000000001.1.1.w.a,b+c,fedcba9876543210.d,e.0000000007",
									"2.a.f.c...-2147483648"});
	is_str(node_sets_text(),
		   "1000000000000001>a(1000000000000001) 1000000000000001>b+c(1000000000000001) "
		   "1000000000000001>fedcba9876543210(1000000000000001) "
		   "d>1000000000000001(1000000000000001) e>1000000000000001(1000000000000001)",
		   "node sets, alternatives, and local waiters are read");
	ok(reports.n == 2 && !reports.nodes[1].is_victim_claim && reports.nodes[0].is_victim_claim &&
	   reports.nodes[1].number == 7 && reports.nodes[0].number == INT32_MIN &&
	   reports.nodes[0].wait == 10, "the other parts of the names are read");

	read_names(4, (const char *[]) {
									"1.1.2.w.b..0000000009", "2.1.1.w.1..0000000008",
									"1.1.1.w.a.d.0000000007", "1.1.3.w.c.e.0000000011"});
	is_str(node_sets_text(), "1>c(1) e>1(1) 2>1(2)", "of several reports of one session the newest counts");
	read_names(3, (const char *[]) {
									"1.1.1.w.a..2147483647", "1.1.2.w.b..-2147483648", "2.1.1.w.1..-2147483647"});
	is_str(node_sets_text(), "1>b(1) 2>1(2)", "the newest is found across the wrap of the numbers");
	read_names(3, (const char *[]) {
									"7.1.1.w.8..0000000001", "07.1.1.w.9..0000000002",
									"9.1.1.w.0,a.0.0000000001"});
	is_str(node_sets_text(), "7>8(7) 9>0(9) 9>a(9) 0>9(9)", "a session id has only one form");
	ok(zkl_is_wait_of("1.2.", 1) && !zkl_is_wait_of("12.2.", 1) && !zkl_is_wait_of("2.1.", 1),
	   "the session of a name is recognised");
}

static void
test_bad_names(void)
{
	static const char *const bad[] = {
		"", ".", "1", "1.", "1.1.1.w", "1.1.1.w.", "1.1.1.w..", "1.1.1.w...",
		"1.1.1.w...x", "1.1.1.w...1x", "1.1.1.w...99999999999", "1.1.1.w...-",
		"1.1.1.x...1", "1.1.1...1", "11111111111111111.1.1.w...1", "g.1.1.w...1",
		"1.1.1.w.a,.b.1", "1.1.1.w.,a.b.1", "1.1.1.w.a+.b.1", "1.1.1.w.a.b,.1",
		"1.1.1.w.a.b+c.1", "1.1.1.w.A.b.1", "1.1.1.w.a.b.1.1", "1.1.1.w.a b.c.1",
		"01.1.1.w.a.b.1", "00.1.1.w.a.b.1", "1.01.1.w.a.b.1", "1.1.1.w.0a.b.1", "1.1.1.w.a.0b.1",
		"\xff\xfe", "1.1.1.w.\xff.b.1"
	};
	const char *names[sizeof(bad) / sizeof(bad[0]) + 1];
	int			n = (int) (sizeof(bad) / sizeof(bad[0]));

	memcpy(names, bad, sizeof(bad));
	names[n] = "7.1.1.w.8..0000000001";
	read_names(n + 1, names);
	is_str(node_sets_text(), "7>8(7)", "invalid names are ignored");
	zkl_reports_free(&reports);
}

int
main(void)
{
	test_by_hand();
	test_within();
	test_cycle();
	test_random();
	test_names();
	test_bad_names();
	return done();
}
