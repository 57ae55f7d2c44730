/*-------------------------------------------------------------------------
 *
 * test_two_victims.c
 *		Two sessions of one deadlock claim to be the victim: only one verdict succeeds.
 *
 * A claims.  B's answer is lost, so B publishes its report again, which is now the newest,
 * and claims as well; both have answered each other.  The first verdict makes the own report
 * invalid, and each verdict checks the version of the other report.
 *
 * Promise: 7.2
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "letters.h"
#include "recipe/deadlock/detector.h"
#include "victims.h"

static bool
is_claiming(Party *party)
{
	return fake_n_traced(party->client, 'u') > 0 && owner_is_in_step(party);
}

/* A and B wait for each other; A, whose report is newer, has rung. */
static void
begin_claim(void)
{
	begin_waiters("ab", "A lock x, B lock y, B lock x");
	owner_goes_on(B, 20, NULL);
	lock_now(A, "y", X);
	fake_count(A->client);
	owner_goes_on(A, 50, is_claiming);
	ok(is_claiming(A), "A claims");
}

/* A claims; B, whose answer was lost and whose report is newer now, claims as well. */
static void
begin_two_claims(void)
{
	begin_claim();
	fake_count(B->client);
	fake_fault(B->client, 2, FAULT_APPLY_DROP);
	for (int i = 0; i < 5; i++)
	{
		owner_goes_on(B, 2, is_claiming);
		if (!fake_is_connected(B->client))
			fake_connect(B->client);
	}
	for (int i = 0; i < 40 && !is_claiming(B); i++)
	{
		owner_goes_on(B, 5, is_claiming);
		fake_stall(60);
	}
	ok(is_claiming(B), "B, whose report is newer now, claims");
	ring(B);
	owner_goes_on(B, 10, NULL);
	while (fake_step(A->client))
		;
	zkl_session_receive(A->session);
}

/* One after the other: B reads the report that A's verdict has written. */
static void
test_two_claims(void)
{
	bool		a;
	bool		b = false;

	begin_two_claims();
	a = owner_goes_on(A, 50, NULL);
	for (int i = 0; i < 20 && !(a && b); i++)
	{
		a = a || owner_goes_on(A, 5, NULL);
		b = b || owner_goes_on(B, 50, NULL);
		fake_stall(25);
	}
	ok(a != b, "one of them is the victim: %s %s", a ? "A" : "", b ? "B" : "");
	scene_end(NULL);
}

/* Lets the owner go on until it has sent so many multis; the last one is not applied. */
static bool
sends(Party *party, int n_multis)
{
	int			n = fake_n_traced(party->client, 'm') + n_multis;

	for (int i = 0; i < 50; i++)
	{
		(void) publish(party);
		if (fake_n_traced(party->client, 'm') == n)
			return true;
		while (fake_step(party->client))
			;
	}
	return false;
}

/* At once: each has read the other one's answer before the first verdict is applied. */
static void
test_two_verdicts(void)
{
	bool		a;
	bool		b;

	begin_two_claims();
	ok(sends(A, 2), "A answers, and sends its verdict");
	ok(sends(B, 1), "B sends its verdict");
	a = owner_goes_on(A, 5, NULL);
	b = owner_goes_on(B, 5, NULL);
	ok(a != b, "only the first verdict succeeds: %s %s", a ? "A" : "", b ? "B" : "");
	scene_end(NULL);
}

/* Another program deletes a node of the cycle after the last answer. */
static void
test_deleted_node(const Party *owner, const char *what)
{
	begin_claim();
	owner_goes_on(B, 10, NULL);
	delete_by_hand(node_of(owner, "x"));
	ok(!owner_goes_on(A, 20, NULL), "%s is deleted after the last answer: no victim", what);
	scene_end(NULL);
}

/* The verdict succeeds, but its answer is lost: nothing has happened, and A claims again. */
static void
test_lost_verdict(void)
{
	int			n = 0;

	begin_claim();
	owner_goes_on(B, 10, NULL);
	fake_count(A->client);
	fake_fault(A->client, 2, FAULT_APPLY_DROP);
	ok(!owner_goes_on(A, 20, NULL) && fake_fault_happened(A->client), "the answer to the verdict is lost");
	for (int i = 0; i < 100 && n == 0; i++)
	{
		heal();
		for (int k = 0; k < 2; k++)
			n += publish(&parties[k]) != NULL;
		fake_run_all();
		fake_advance(50);
	}
	is_int(n, 1, "then one of them is the victim, within five seconds");
	scene_end(NULL);
}

/* A completes the deadlock; its request with this number fails, and its connection stays. */
static void
begin_search(int failing)
{
	begin_waiters("ab", "A lock x, B lock y, B lock x");
	owner_goes_on(B, 20, NULL);
	lock_now(A, "y", X);
	fake_count(A->client);
	if (failing)
		fake_fault(A->client, failing, FAULT_THROTTLE);
}

/* The search fails: it is repeated a second later. */
static void
test_failed_search(void)
{
	int			n = 0;

	begin_search(0);
	while (fake_n_traced(A->client, 's') == 0 && !publish(A))
		while (fake_step(A->client))
			;
	n = fake_counted(A->client);
	scene_end(NULL);
	begin_search(n);
	for (n = 0; n < 3000 && !is_victim_now(A) && !is_victim_now(B); n += 25)
	{
		fake_run_all();
		fake_advance(25);
	}
	ok(fake_fault_happened(A->client), "a search fails");
	ok(n >= 1000 && n < 3000, "a search that has failed is repeated a second later: %d ms", n);
	scene_end(NULL);

	/* All searches fail: A must not be able to read the list. */
	begin_search(0);
	fake_quirks.deny_read = WAITING;
	for (n = 0; n < 120000; n += 100)
	{
		(void) publish(A);
		while (fake_step(A->client))
			;
		fake_advance(100);
	}
	n = fake_n_traced(A->client, 's');
	ok(n >= 12 && n <= 20, "searches that fail again and again have pauses that grow: %d in two minutes", n);
	scene_end(NULL);
}

/* Lets time pass, 25 ms a turn; B's owner is stopped.  Rings A's bell each time if asked to. */
static bool
a_waits(int ms, bool rings)
{
	bool		is_victim = false;

	for (; ms > 0 && !is_victim; ms -= 25)
	{
		if (rings)
			ring(A);
		is_victim = owner_goes_on(A, 10, NULL);
		while (fake_step(B->client))
			;
		fake_advance(25);
	}
	return is_victim;
}

/* B is silent: A's claim ends, and A claims again after pauses, however often its bell rings. */
static void
test_silent(void)
{
	int			n;

	begin_claim();
	n = fake_n_traced(A->client, 'u');
	ok(!a_waits(1900, false) && owner_is_in_step(A), "a claim waits for answers");
	ok(!a_waits(150, false) && !owner_is_in_step(A), "a claim waits for answers for two seconds");
	is_int(fake_n_traced(A->client, 'u'), n, "a claim without answers does not begin again at once");
	n = 0;
	for (int ms = 0; ms < 60000; ms += 25)
	{
		fake_count(A->client);
		if (a_waits(25, true))
			break;
		n += fake_n_traced(A->client, 'u');
	}
	ok(n >= 4 && n <= 16, "rings do not shorten the pauses, which grow: %d claims in a minute", n);
	scene_end(NULL);
}

/* Another program's report with B's name, B's waits, and an answer. */
static void
test_forged_answer(void)
{
	char		path[100];
	const FakeNode *node;
	char		data[1000];
	char		bell[] = " 0 server";

	begin_claim();
	snprintf(path, sizeof(path), WAITING "/%" PRIx64, (uint64_t) fake_session_id(B->client));
	node = fake_tree_find(path);
	ok(node && node->data_len < (int) sizeof(data) - 1, "B has a report");
	memcpy(data, node->data, (size_t) node->data_len);
	data[node->data_len] = '\0';
	ok(strstr(data, bell) != NULL, "the report of B answers no ring");
	strstr(data, bell)[1] = '9';
	fake_tree_delete(path);
	make_node(path, data, ZKL_CREATE_EPHEMERAL, 0x77);
	ok(!a_waits(5000, false), "another session's report is no answer");
	scene_end(NULL);
}

int
main(void)
{
	test_silent();
	test_forged_answer();
	test_two_claims();
	test_two_verdicts();
	test_lost_verdict();
	test_failed_search();
	test_deleted_node(A, "the node of a holder");
	test_deleted_node(B, "the node of a waiter");
	return done();
}
