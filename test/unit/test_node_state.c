/*-------------------------------------------------------------------------
 *
 * test_node_state.c
 *		What follows for a node from everything that can happen to it: every state, every
 *		event, wanted or given up, its operation in flight or not.
 *
 * Promises: 3.5, 4.2
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "recipe/queue/queue.h"
#include "tap.h"

/* A letter for each state, in their order; and '-' for what cannot happen. */
static const char letters[] = "ncuLMRWHDlg-";

/*
 * A row for each state: its letter, whether the node is wanted, and the next state after each event,
 * in the order of ZklNodeEvent:
 *
 *		creating, created, not created, outcome open, first, not first, a waiting writer, read,
 *		change, connected, reduced, moved, not moved, given up, deleted
 *
 * A second text is for a node whose operation is in flight, if that differs.
 */
static const char *const rows[] = {
	"n wanted    c--------n---g-",
	"n given-up  ---------n---g-",
	"c wanted    -Lnu-----c---c-",
	"c given-up  -lgu-----c---c-",
	"u wanted    -Ln------u---u-",
	"u given-up  -lg------u---u-",
	"L wanted    ----HRM-LL---l-",
	"L given-up  -------------l-",
	"M wanted    ---------M-LLl- ---------M-LLM-",
	"M given-up  ---------M-lll- ---------M-llM-",
	"R wanted    -------WLL---l-",
	"R given-up  -------------l-",
	"W wanted    --------LL---l-",
	"W given-up  -------------l-",
	"H wanted    ---------HD--l-",
	"H given-up  -------------l-",
	"D wanted    ---------D-H-l- ---------D-H-D-",
	"D given-up  ---------D-l-l- ---------D-l-D-",
	"l wanted    ---------l---l-",
	"l given-up  ---------l---lg",
	"g wanted    ---------g---g-",
	"g given-up  ---------g---g-",
};

static void
write_row(char *out, ZklNodeState state, bool wanted, bool is_sent)
{
	for (int event = 0; event < ZKL_N_NODE_EVENTS; event++)
		out[event] = letters[zkl__node_next(state, (ZklNodeEvent) event, wanted, is_sent)];
	out[ZKL_N_NODE_EVENTS] = '\0';
}

static void
test_rows(void)
{
	int			n = (int) (sizeof(rows) / sizeof(rows[0]));

	is_int(n, 2 * NODE_IMPOSSIBLE, "the table has each state twice: wanted, and given up");
	for (int i = 0; i < n; i++)
	{
		char		letter;
		char		wanted[10];
		char		expected[32];
		char		expected_sent[32];
		ZklNodeState state;

		if (sscanf(rows[i], "%c %9s %31s %31s", &letter, wanted, expected, expected_sent) < 4)
			strcpy(expected_sent, expected);
		state = (ZklNodeState) (strchr(letters, letter) - letters);
		for (int is_sent = 0; is_sent <= 1; is_sent++)
		{
			char		next[ZKL_N_NODE_EVENTS + 1];

			write_row(next, state, strcmp(wanted, "wanted") == 0, is_sent);
			is_str(next, is_sent ? expected_sent : expected, "state %c, %s, %s", letter, wanted,
				   is_sent ? "in flight" : "nothing in flight");
		}
	}
}

/* Returns whether the node can still exist at the ensemble. */
static bool
may_exist(ZklNodeState state)
{
	return state != NODE_NEW && state != NODE_GONE;
}

/*
 * Follows everything that can happen to a node that was given up, from each state in which that
 * can be.  Only an answer that shows that it does not exist lets it go.
 */
static void
test_given_up(void)
{
	int			n_ways = 0;
	int			n_bad = 0;

	for (int from = 0; from < NODE_IMPOSSIBLE; from++)
		for (int event = 0; event < ZKL_N_NODE_EVENTS; event++)
			for (int is_sent = 0; is_sent <= 1; is_sent++)
			{
				ZklNodeState next = zkl__node_next((ZklNodeState) from, (ZklNodeEvent) event, false, is_sent);

				if (next == NODE_IMPOSSIBLE)
					continue;
				n_ways++;
				n_bad += next == NODE_GONE && may_exist((ZklNodeState) from) &&
					event != ON_DELETED && event != ON_NOT_CREATED;
				n_bad += next == NODE_LISTING || next == NODE_READING || next == NODE_WAITING ||
					next == NODE_HELD;
			}
	ok(n_ways > 30, "a node that was given up can go %d ways", n_ways);
	is_int(n_bad, 0, "none of them forgets a node that may exist, or grants one");
}

/* From every state that can be reached, a node that is given up can go, by answers alone. */
static void
test_can_go(void)
{
	bool		reaches[NODE_IMPOSSIBLE] = {[NODE_GONE] = true};
	int			n = 0;

	for (int round = 0; round < NODE_IMPOSSIBLE; round++)
		for (int state = 0; state < NODE_IMPOSSIBLE; state++)
			for (int event = 0; event < ZKL_N_NODE_EVENTS; event++)
				for (int is_sent = 0; is_sent <= 1; is_sent++)
				{
					ZklNodeState next = zkl__node_next((ZklNodeState) state, (ZklNodeEvent) event, false, is_sent);

					if (next != NODE_IMPOSSIBLE && reaches[next])
						reaches[state] = true;
				}
	for (int state = 0; state < NODE_IMPOSSIBLE; state++)
		n += reaches[state];
	is_int(n, NODE_IMPOSSIBLE, "a node that was given up can go from every state");
}

int
main(void)
{
	is_int((int) strlen(letters), NODE_IMPOSSIBLE + 1, "each state has a letter");
	test_rows();
	test_given_up();
	test_can_go();
	return done();
}
