/*-------------------------------------------------------------------------
 *
 * test_hold_news.c
 *		What a session does about a node that is first in its queue: whose node it is, and what
 *		was found about it, as a table.
 *
 * Promises: 5.4, 11.3
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "recipe/lock/lock.h"
#include "tap.h"

/* n note, k not kept, a answer, r revoked, l leave, q queue again, x lose, g go on, w watch again. */
static const char letters[] = "nkarlqxgw";

/*
 * Whose node; then nothing, ours, asked, other, revoke, removed, unreadable, changed, a waiter,
 * time up; - is nothing.
 */
static const char *const rows[] = {
	"nobody's          -    -    n    -    -    -    -    -    n    -",
	"a_lock's          -    -    na   k    kr   x    -    w    nk   -",
	"a_request's       -    g    na   kg   kg   q    -    w    nk   -",
	"taken_again       -    g    nq   nq   nq   q    q    w    nk   -",
	"kept              -    -    nl   nl   nl   l    l    nl   nl   l",
};

static const char *const findings[] = {
	"nothing", "ours", "asked", "other", "revoke", "removed", "unreadable", "changed", "waiter",
	"time up"
};

static void
write_response(char *out, unsigned response)
{
	for (int i = 0; letters[i]; i++)
		if (response & 1U << i)
			*out++ = letters[i];
	*out = '\0';
}

static void
test_rows(void)
{
	is_int(sizeof(rows) / sizeof(rows[0]), ZKL_N_HELD_BY, "the table has everybody whose node it can be");
	is_int(sizeof(findings) / sizeof(findings[0]), ZKL_N_FINDINGS, "the table has everything that can be found");
	for (int i = 0; i < ZKL_N_HELD_BY; i++)
	{
		const char *cell = rows[i] + 18;

		for (int found = 0; found < ZKL_N_FINDINGS; found++, cell += 5)
		{
			char		response[16];
			char		expected[16];

			sscanf(cell, "%15s", expected);
			write_response(response, zkl__held_response((ZklHeldBy) i, (ZklFinding) found));
			is_str(response, strcmp(expected, "-") == 0 ? "" : expected, "%.16s: %s", rows[i], findings[found]);
		}
	}
}

/* Rules that the table must keep, whatever else is in it. */
static void
test_rules(void)
{
	int			n_bad = 0;

	for (int i = 0; i < ZKL_N_HELD_BY; i++)
		for (int found = 0; found < ZKL_N_FINDINGS; found++)
		{
			unsigned	response = zkl__held_response((ZklHeldBy) i, (ZklFinding) found);
			bool		goes = (response & (ZKL_LEAVE | ZKL_QUEUE_AGAIN | ZKL_LOSE)) != 0;

			n_bad += (response & ZKL_LOSE) && i != ZKL_HELD_BY_LOCK;
			n_bad += (response & ZKL_REVOKED) && i != ZKL_HELD_BY_LOCK;
			n_bad += (response & ZKL_LEAVE) && i != ZKL_HELD_BY_SESSION;
			n_bad += goes && (response & (ZKL_GO_ON | ZKL_ANSWER | ZKL_WATCH));
			n_bad += found == ZKL_HOLD_FOUND_REMOVED && i != ZKL_HELD_BY_NOBODY && !goes;
			n_bad += (found == ZKL_HOLD_FOUND_ASKED || found == ZKL_HOLD_FOUND_WAITER) && !(response & ZKL_NOTE);
			n_bad += found >= ZKL_HOLD_FOUND_ASKED && i == ZKL_HELD_BY_SESSION && !goes;
			n_bad += found == ZKL_HOLD_FOUND_ASKED && i != ZKL_HELD_BY_NOBODY && !goes && !(response & ZKL_ANSWER);
		}
	is_int(n_bad, 0, "only a lock is lost or revoked, only what is kept is left, for everything but itself, and each question is answered");
}

int
main(void)
{
	test_rows();
	test_rules();
	return done();
}
