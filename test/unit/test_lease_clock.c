/*-------------------------------------------------------------------------
 *
 * test_lease_clock.c
 *		The times of a session's lease after everything that can happen to it, as a table.
 *
 * Promises: 5.1, 5.11
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "recipe/session/lease_clock.h"
#include "tap.h"

/* T/3 is 4000, 2T/3 8000, T/6 2000, T/8 1500, 5T/24 2500, 11T/12 11000. */
#define T 12000

/* The clock before each row; a row may begin with other writes. */
static const ZklLeaseClock start = {
	.timeout_ms = T,
	.lease_from_ms = 10000,
	.trusted_until_ms = 14000,
	.reached_ms = 10000,
};

/*
 * The settled write, the confirmed write and its answer; then a write: its submission, whether it
 * is backed (b) or not (-), the write that was settled then, its answer; then the clock afterwards:
 * lease from, trusted until, reached, settled, confirmed, its answer.
 */
static const char *const writes[] = {
	/* the first one ever */
	"0 0 0             10500 b 0 10600         10500 14500 10500 0 10500 10600",
	"0 0 0             10500 - 0 10600         10000 14000 10500 0 10500 10600",
	"0 0 0             10500 b 0 12600         10000 14000 10500 0 10500 12600",
	/* the one before is not settled: half a tick is 1500 */
	"0 10000 10010     10500 b 0 10600         10500 14500 10500 0 10000 10010",
	"0 10000 10010     10500 b 0 11509         10500 14500 10500 0 10000 10010",
	"0 10000 10010     10500 b 0 11510         10500 14500 10500 10000 10500 11510",
	/* it is settled */
	"0 10000 10010     11600 b 10000 11700     11600 19600 11600 10000 11600 11700",
	"0 10000 10010     11600 - 10000 11700     10000 14000 11600 10000 11600 11700",
	/* answered late: after T/6 at the latest */
	"0 10000 10010     11600 b 10000 13600     11600 19600 11600 10000 11600 13600",
	"0 10000 10010     11600 b 10000 13601     10000 14000 11600 10000 11600 13601",
	"0 10000 10010     11600 - 10000 13601     10000 14000 11600 10000 11600 13601",
	/* how old the settled write is: up to 2T/3, not less than T/3 */
	"5000 10000 10010  11600 b 8601 11700      11600 19600 11600 10000 11600 11700",
	"5000 10000 10010  11600 b 8599 11700      11600 19599 11600 10000 11600 11700",
	"5000 10000 10010  11600 b 4601 11700      11600 15601 11600 10000 11600 11700",
	"5000 10000 10010  11600 b 4600 11700      11600 15600 11600 10000 11600 11700",
	"5000 10000 10010  11600 b 1000 11700      11600 15600 11600 10000 11600 11700",
	/* answers of earlier requests come later: no time goes back */
	"0 10000 10010     9000 b 0 10900          10000 14000 10000 0 10000 10010",
	"0 10000 10010     9900 b 9000 10900       10000 17900 10000 0 10000 10010",
	"0 10000 10010     9900 b 9000 12900       10000 14000 10000 10000 9900 12900",
	"0 10000 10010     9900 - 9000 10900       10000 14000 10000 0 10000 10010",
};

static void
test_writes(void)
{
	for (size_t i = 0; i < sizeof(writes) / sizeof(writes[0]); i++)
	{
		ZklLeaseClock clock = start;
		ZklCall		write = {0};
		char		backed;
		char		after[128];
		char		expected[128] = "";
		long		settled,
					confirmed,
					confirmed_answer,
					submitted,
					settled_then,
					answer;

		sscanf(writes[i], "%ld %ld %ld %ld %c %ld %ld %127[0-9 ]", &settled, &confirmed, &confirmed_answer,
			   &submitted, &backed, &settled_then, &answer, expected);
		clock.settled.submitted_ms = settled;
		clock.confirmed.submitted_ms = confirmed;
		clock.confirmed.answered_ms = confirmed_answer;
		write.submitted_ms = submitted;
		write.is_backed = backed == 'b';
		write.settled_ms = settled_then;
		zkl__clock_confirmed(&clock, &write, answer);
		snprintf(after, sizeof(after), "%ld %ld %ld %ld %ld %ld", (long) clock.lease_from_ms,
				 (long) clock.trusted_until_ms, (long) clock.reached_ms, (long) clock.settled.submitted_ms,
				 (long) clock.confirmed.submitted_ms, (long) clock.confirmed.answered_ms);
		is_str(after, expected, "%s", writes[i]);
	}
}

/* The new session timeout and the handshake's time; then trusted until, reached, T. */
static const char *const connections[] = {
	"12000 15000   14000 15000 12000",
	"24000 15000   14000 15000 24000",
	"6001 15000    14000 15000 6001",
	"5999 15000    13999 15000 5999",
	"3000 15000    12000 15000 3000",
};

static void
test_connections(void)
{
	for (size_t i = 0; i < sizeof(connections) / sizeof(connections[0]); i++)
	{
		ZklLeaseClock clock = start;
		long		timeout,
					asked;
		char		after[64];
		char		expected[64] = "";

		sscanf(connections[i], "%ld %ld %63[0-9 ]", &timeout, &asked, expected);
		zkl__clock_connected(&clock, timeout, asked);
		snprintf(after, sizeof(after), "%ld %ld %ld", (long) clock.trusted_until_ms, (long) clock.reached_ms,
				 (long) clock.timeout_ms);
		is_str(after, expected, "a new connection: %s", connections[i]);
	}
}

/* What follows at a moment: a letter for each predicate that is true, and what is left of the lease. */
static void
test_moments(void)
{
	ZklLeaseClock clock = start;
	const ZklLeaseClock never = {.timeout_ms = T};

	clock.confirmed = (ZklConfirmation)
	{
		10000, 10010
	};
	clock.settled.submitted_ms = 7000;
	ok(zkl__clock_is_fresh(&clock, 12000), "a write that is T/6 old suffices for a grant");
	ok(!zkl__clock_is_fresh(&clock, 12001), "an older one does not");
	ok(!zkl__clock_is_fresh(&never, 1000), "no write does not suffice, also right after the machine's start");
	ok(zkl__clock_is_backed(&clock, 12500), "an answer backs what is sent 5T/24 later");
	ok(!zkl__clock_is_backed(&clock, 12501), "it backs nothing that is sent after that");
	is_int(zkl__clock_settled_ms(&clock, 11509), 7000, "a write is not settled until half a tick after its answer");
	is_int(zkl__clock_settled_ms(&clock, 11510), 10000, "it is settled then");
	is_int(zkl__clock_settled_ms(&never, 100000), 0, "without a write none is settled");
	is_int(zkl__clock_left(&clock, 10000, 10000), 4000, "the lease is T/3");
	is_int(zkl__clock_left(&clock, 10000, 13999), 1, "it counts from the submission");
	is_int(zkl__clock_left(&clock, 10000, 14000), 0, "it ends");
	is_int(zkl__clock_left(&clock, 10000, 99999), 0, "nothing is left of it later");
	is_int(zkl__clock_left(&clock, 0, 1), 0, "without a write there is none");
	is_int(zkl__clock_reserve(&clock), 2000, "a commit needs half of it");
	is_int(zkl__clock_interval(&clock), 2000, "a proof is due after T/6");
}

/* Trusted until, the answer of the confirmed write, and a failed proof, 0: none; then when the next is due. */
static const char *const proofs[] = {
	/* trust is short: as soon as the write before is settled, at the latest after T/6 */
	"14000 10010 0       11510",
	"15999 10010 0       11510",
	"15999 10600 0       12000",
	"14000 10499 0       11999",
	/* trust is long */
	"16000 10010 0       12000",
	"18000 10010 0       12000",
	/* a proof has failed: a pause of T/48 */
	"14000 10010 11300   11550",
	"14000 10010 11000   11510",
	"18000 10010 11800   12050",
};

static void
test_proofs(void)
{
	for (size_t i = 0; i < sizeof(proofs) / sizeof(proofs[0]); i++)
	{
		ZklLeaseClock clock = start;
		long		trusted,
					answer,
					failed,
					due;

		sscanf(proofs[i], "%ld %ld %ld %ld", &trusted, &answer, &failed, &due);
		clock.trusted_until_ms = trusted;
		clock.confirmed.submitted_ms = 10000;
		clock.confirmed.answered_ms = answer;
		if (failed)
			zkl__clock_pause(&clock, failed);
		is_int(zkl__clock_proof_due_ms(&clock), due, "when a proof is due: %s", proofs[i]);
	}
}

int
main(void)
{
	test_writes();
	test_connections();
	test_moments();
	test_proofs();
	return done();
}
