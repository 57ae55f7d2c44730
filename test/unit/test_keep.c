/*-------------------------------------------------------------------------
 *
 * test_keep.c
 *		Kept locks: a session takes a lock that it has released again without a request,
 *		and gives it up as soon as another session wants it.
 *
 * The lease is 2 s, a proof is due after 1 s, and a queue of one is looked at each 0.5 s.
 *
 * Promises: 11.1, 11.2, 11.3, 11.4
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "letters.h"
#include "play.h"

#define USED "D lock, D leave, "

static const Play plays[] = {
	/* again */
	{HERE, "the mark is in the data from the create", "A keep, A lock!, A apply, A word may"},
	{HERE, "the node is read right after the grant, with a watch", "B lock, B leave, A keep, A lock, A sends clw, A watches 1"},
	{HERE, "a released lock stays in the queue, and is not held",
	"A keep, A lock, A release, A has 0, A nodes 1, A word may, A lost 0"},
	{HERE, "a kept lock is taken again without a request", "A keep, A lock, A release, A lock, A has X, A sends , A nodes 1"},
	{HERE, "a kept lock that was taken again is released without a request", "A keep, A lock, A release, A lock, A release, A sends , A nodes 1"},
	{HERE, "a kept lock is taken again without a request also by an attempt, and shared", "A keep, A share, A release, A tryshare, A has S, A sends , A nodes 1"},
	{HERE, "a session that does not keep deletes its node", "A lock, A release, A nodes 0"},
	{HERE, "a kept node is given up after the time of its keeper", "A keep 300, A lock, A release, A pass 299, A nodes 1, A pass 1, A nodes 0"},
	{HERE, "a kept node is given up no later because another one is kept for longer", USED "A keep, A lock, A release, A keep 300, A lock b, A release b, A pass 300, A nodes 1"},
	{HERE, "giving up everything that is kept", "A keep, A lock, A release, A lock b, A release, A leavekept, A nodes 0"},

	/* asked */
	{HERE, "another session gets at once what is only kept", "A keep, A lock, A release, B lock, B has X, A nodes 0"},
	{HERE, "a session asks once for what is only kept: one read and one change of the data", "A keep, A lock, A release, B lock, B sends clgwul"},
	{HERE, "an attempt gets at once what is only kept", "A keep, A lock, A release, B try, B sends clgwul, B has X, A nodes 0"},
	{HERE, "a sharer gets at once what a writer only keeps", "A keep, A lock, A release, B share, B has S, A nodes 0"},
	{HERE, "sharers do not ask sharers", "A keep, A share, A release, B share, B has S, A nodes 1, A word may"},
	{HERE, "a writer asks all sharers",
	"A keep, B keep, C keep, A share, B share, C share, A release, B release, C release, D lock, D has X, A nodes 0, B nodes 0, C nodes 0"},
	{HERE, "the owner of a lock in use answers, and does not keep it", "A keep, A lock, B lock, A word use, A has X, A release, A nodes 0, B has X"},
	{HERE, "an attempt is refused at the answer, which it reads again behind a sync", "A keep, A lock, B try, B is busy, B sends clgwulwslwd, A word use, A release, A nodes 0"},
	{HERE, "an attempt that comes after the answer is refused without a question",
	"A keep, A lock, B try, B is busy, B try, B is busy, A has X, A word use"},
	{HERE, "a lock that was asked for is not kept by its session for a minute",
	"A keep, A lock, A release, B lock, B leave, A pass 59000, A lock, A word no, A release, A nodes 0, A pass 1001, A lock, A word may"},
	{HERE, "a lock that was asked for while it was in use is not kept by its session for a minute", "A keep, A lock, B try, A release, A lock, A word no"},
	{HERE, "a lock whose release another program has requested is not kept", "A keep, A lock, A revoke, A release, A nodes 0"},
	{HERE, "another lock is kept meanwhile", "A keep, A lock, B lock, A lock b, A release b, A nodes 2"},
	{HERE, "a waiter may keep what it is granted later, so it is asked, too",
	"A lock, B keep, B lock, C lock, A leave, B has X, B word use, B release, B nodes 0, C has X"},

	{HERE, "an attempt waits only a second for the answer of an owner of another server",
	"A join tag=7, B join tag=8, A keep, A lock, A release, B try!, B until! z, B asks yes, A apply, B has X"},
	{HERE, "a request other than an attempt waits for the answer of an owner of another server", "A join tag=7, B join tag=8, A keep, A lock, A release, B lock!, B until! z, B asks no, A apply, B has X"},
	{HERE, "an attempt waits behind its own server's node: that may be a pending delete",
	"A join tag=7, B join tag=7, A keep, A lock, A release, B try!, B until! z, B asks no, A apply, B has X"},
	{HERE, "at the session's limit a new lock is granted, for which what was kept first is given up, and no other",
	"A join nodes=2, A keep, A lock, A release, A pass 10, A lock b, A release, A lock c, A has X c, A word -, A nodes 2"},

	{HERE, "at the session's limit a new permit is granted, for which what was kept first is given up", "A join nodes=2, A keep, A lock, A release, A lock b, A release, A permit s3, A is ok"},

	/* another mode, and arrays */
	{HERE, "another mode deletes the kept node first", "A keep, A share, A release, A lock, A has X, A nodes 1"},
	{HERE, "the weaker mode deletes the kept node first, too", "A keep, A lock, A release, A share, A has S, A nodes 1"},
	{HERE, "an array deletes kept nodes first, and is not kept", "A keep, A lock, A release, A lock ab, A has XX ab, A nodes 2, A release, A nodes 0"},
	{HERE, "a lock that was upgraded is not kept", "A keep, A share, A lock, A has X, A release, A nodes 0"},
	{HERE, "the node of an upgrade is not marked: only the first node is asked for", "A keep, A share, A lock, B lock, B sends clgwu"},
	{HERE, "a lock that was downgraded is not kept", "A keep, A lock, A downgrade, A has S, A release, A nodes 0"},

	/* loss */
	{HERE, "a kept node that is deleted by hand is no loss", "A keep, A lock, A release, A delete, A lost 0, A lock, A has X, A nodes 1"},
	{HERE, "a session that expires while it keeps loses nothing", "A keep, A lock, A release, A expire, A connect, A state expired, A lost 0"},
	{HERE, "a session that keeps has no deadline of its own", "A keep, A lock, A release, A disconnect, A pass 5999, A state suspended"},

	/* the lease */
	{HERE, "the re-acquire needs a proof if less than T/6 of the lease is left",
	"A keep, A lock, A release, A pass 1500, A lock, A has X, A nodes 1"},

	/* connections */
	{HERE, "a question that is lost with the connection is repeated", "A keep, A lock, A release, B lock!, B until! g, B disconnect, B connect, B has X"},
	{HERE, "a question that a busy server refuses is asked again", "A keep, A lock, A release, B fault throttle@5, B lock, B sends clgwu, B is pending, B pass 50, B has X"},
	{HERE, "a question is asked again if a busy server refuses to read the node", "A keep, A lock, A release, B fault throttle@3, B lock, B sends clgw, B is pending, B pass 50, B has X"},
	{HERE, "a question that is answered with an error is asked again", "A keep, A lock, A release, B fault other-error@5, B lock, B is pending, B pass 50, B has X"},
	{HERE, "a question that cannot be sent is asked again", "A keep, A lock, A release, B fault refuse@3, B lock, B is pending, B pass 50, B has X"},
	{HERE, "a question that a busy server refuses is asked again for an attempt, which waits for a second", "A keep, A lock, A release, B fault throttle@5, B try, B asks yes, B pass 50, B has X"},
	{HERE, "a question that an ACL forbids is not asked again", "A keep, A lock, A release, B fault no-auth@5, B lock, all pass 400, B sends clgwu, B is pending, all pass 100, B has X"},
	{HERE, "a lock whose watch a busy server has refused is not kept: no question would arrive", USED "A keep, A fault throttle@3, A lock, A sends clw, A release, A nodes 0"},
	{HERE, "a question during an outage is answered after it", "A keep, A lock, A release, A disconnect, B lock, B is pending, A connect, B has X, A nodes 0"},
	{HERE, "a question during an outage is answered by the delete alone if the lock is only kept", "A keep, A lock, A release, A disconnect, B lock, A connect, A sends wd"},
	{HERE, "a question during an outage is answered after it if the lock is in use", "A keep, A lock, A disconnect, B lock, B is pending, A connect, A word use, A release, B has X"},
	{HERE, "the node is read on each new connection", "A keep, A lock, A release, A disconnect, A connect, A sends w, A watches 1"},
	{HERE, "a lock that is released during an outage is not kept", "A keep, A lock, A disconnect, A release, A connect, A nodes 0"},

	/* contenders that do not ask */
	{HERE, "a queue is looked at after T/12: a waiter that does not ask gets what is kept",
	"A keep, A lock, A release, D foreign, A pass 499, A nodes 1, A pass 1, A nodes 0"},
	{HERE, "a queue is looked at again later: a waiter that does not ask gets what is kept", "A keep, A lock, A release, A pass 500, D foreign, A pass 500, A nodes 0"},
	{HERE, "a queue without a waiter is no reason to give up what is kept", "A keep, A lock, A release, A pass 500, A nodes 1"},
	{HERE, "a lock that was given up for a waiter that does not ask is not kept for a minute", "A keep, A lock, A release, D foreign, A pass 500, D delete, A lock, A word no"},
	{HERE, "the other keepers are asked on behalf of a waiter that does not ask",
	USED "A keep, B keep, A share, A pass 300, B share, A release, B release, D foreign, A pass 200, A nodes 0, B nodes 0"},
	{HERE, "a lock that is in use again when a waiter that does not ask is seen is not kept at its release", "A keep, A lock, A release, A lock, D foreign, A pass 500, A has X, A release, A nodes 0"},
	{HERE, "an attempt gets its answer from an owner that has seen a waiter that does not ask", "A keep, A lock, A release, A lock, D foreign, A pass 500, D delete, B try, B is busy, A word use"},
	{HERE, "a queue with three contenders is looked at three times as rarely",
	USED "A keep, B keep, C keep, A share, B share, C share, A release, B release, C release, A pass 500, A sends l, A pass 1499, A sends , A pass 1, A sends l"},
	{HERE, "no queue is looked at while the session is disconnected", "A keep, A lock, A release, A disconnect, A pass 1000, A sends "},
	{HERE, "a lock that is only held is not looked at", USED "A keep, A lock, A pass 900, A sends , A pass 5000, A sends "},
	{HERE, "a lock that is only held is not looked at when the session looks for another one", "D lock ab, D leave, A keep, A lock, A release, A lock b, A pass 500, A sends l"},
	{HERE, "a lock that is held again is not looked at", USED "A keep, A lock, A release, A lock, A pass 500, A sends l, A pass 5000, A sends "},

	/* whom to ask */
	{HERE, "a node whose data do not say that it may be kept is not asked for", USED "D foreign bit, B lock, B sends clgw"},
	{HERE, "a node of Curator or kazoo is not asked for: it is not even read, whatever bits its random name has", USED "D foreign, B lock, B sends clw"},
	{HERE, "an attempt behind a node of Curator or kazoo is refused at once", USED "D foreign, B try, B is busy, B sends clsld"},
	{HERE, "a node of go-zookeeper, whose name has 16 random bytes, is not read", USED "D foreign go, B lock, B sends clw"},
	{HERE, "a server whose hash begins with the bits 10, as random UUIDs do, is asked",
	"A join tag=2147483655, B join tag=7, A keep, A lock, A release, B lock, B sends clgwul, B has X, A nodes 0"},
	{HERE, "a server whose hash begins with the bits 10 asks", "A join tag=7, B join tag=2147483655, A keep, A lock, A release, B try, B sends clgwul, B has X, A nodes 0"},
	{HERE, "a server whose hash begins with the bits 10 knows its own nodes, which an attempt waits for",
	"A join tag=2147483655, B join tag=2147483655, A lock, A disconnect, A release, B try, B is pending, A connect, B has X"},
	{HERE, "a server with the greatest tag is asked, too",
	"A join tag=4294967295, B join tag=7, A keep, A lock, A release, B lock, B sends clgwul, B has X, A nodes 0"},
	{HERE, "a node that is in use is not asked for again, and an attempt is refused in the second list", "A keep, A lock, B lock, C lock, C sends clgw, D try, D is busy, D sends clsld"},
	{HERE, "a node whose name has no mark is not asked for: it is not even read", USED "A lock, B lock, B sends clw"},
	{HERE, "the session's own node is not asked for", USED "A keep, A share, A release, A lock, A sends dclw"},
	{HERE, "the node of an upgrade is not asked for", "B share, A keep, A share, A lock, A sends clw"},
	{HERE, "a sharer does not ask for a sharer before the writer", "A keep, A share, B lock, C share, C sends clw"},
	{HERE, "a node behind is not asked for", "A lock, B lock, C keep, C lock, B disconnect, B connect, C word may"},
	{HERE, "an attempt waits for no node whose name has no mark", "A lock, B try, B is busy, B sends clsld"},
	{HERE, "an attempt waits for a node that another session has asked for", "A keep, A lock, A release, B share!, B until! u, C tryshare, C has S"},
	{HERE, "an attempt is refused at once behind a waiter that may keep later", "A lock, B keep, B lock, C try, C is busy, B word may"},

	/* other data */
	{HERE, "a kept lock whose release is requested is given up", "A keep, A lock, A release, A revoke, A nodes 0"},
	{HERE, "a held lock whose release is requested will not be kept", "A keep, A lock, A revoke, A word use, A release, A nodes 0, A lock, A word no"},
	{HERE, "a request to release a held lock answers a question that it replaces", "A keep, A lock, B try!, B until! u, A revoke, A word use, B is busy"},
	{HERE, "a downgraded lock is in use, and an attempt is refused at once", "A keep, A lock, A downgrade, A word use, B try, B is busy"},

	{HERE, "a node with another program's data is not kept: nobody would ask for it", "A keep, A lock, A write note, A release, A nodes 0"},

	/* taken again, but not granted yet */
	{HERE, "a re-acquire without the lease is granted with the proof", "A keep, A lock, A release, A pass 1500, A lock!, A has 0, A pass 0, A has X, A nodes 1"},
	{HERE, "a re-acquire without the lease queues behind a session that asks before the proof",
	"A keep, A lock, A release, A pass 1500, B lock!, B until! u, A lock, B has X, A has 0, A word no"},
	{HERE, "a re-acquire without the lease is granted with the proof also if the release was requested", "A keep, A lock, A release, A pass 1500, A lock!, A revoke, A has X, A word no"},
	{HERE, "a re-acquire without the lease is granted also if the node is deleted by hand, and the new one may be kept", "A keep, A lock, A release, A pass 1500, A lock!, A delete, A has X, A word may"},
	{HERE, "a node that is given up is not taken again", "A keep, A lock, A release, A leavekept!, A lock, A has X, A nodes 1"},
	{HERE, "a re-acquire right after a new connection waits for the read", "A keep, A lock, A release, A disconnect, A connect!, A lock, A has X, A nodes 1, A word may"},
	{HERE, "a re-acquire right after a new connection queues if the read fails", "A keep, A lock, A release, A disconnect, A lock!, A fault no-auth, A connect, A has X, A nodes 1"},
	{HERE, "a kept node that cannot be watched is given up", "A keep, A lock, A release, A disconnect, A fault no-auth, A connect, A nodes 0"},
	{HERE, "a kept node is not given up if another connection is lost", "A keep, A lock, A release, A disconnect, A connect!, A until! w, A disconnect, A connect, A nodes 1"},
	{HERE, "a question that is read while the node is being deleted is not answered",
	"A keep, A lock, B lock!, B until! u, A until! w, A release!, A leavekept, A sends d, B has X"},
	{HERE, "all that is kept is given up with one request", "A keep, A lock, A release, A lock b, A release, A leavekept, A sends m"},
};

/* The node's data, and how often they were set. */
static const char *
data_of(const Party *party)
{
	static char found[80];
	const FakeNode *node = fake_tree_find(node_of(party, "a"));

	snprintf(found, sizeof(found), "%.*s, %d times", node->data_len, node->data, node->version);
	return found;
}

static void
test_versions(void)
{
	scene_begin(3);
	play_begin();
	play_act("A keep, A lock, C lock!, C until! g, B lock!", true);
	while (fake_step(A->client) || fake_step(B->client))
		;
	is_str(data_of(A), "party 0 keep=use, 2 times", "the first question has its answer");
	fake_run_all();
	is_str(data_of(A), "party 0 keep=use, 2 times", "the second one, of a session that has read before, does not replace it");
	scene_end(NULL);

	scene_begin(2);
	play_begin();
	play_act("A keep, A lock, B lock!, B until! u", true);
	fake_count(A->client);
	while (fake_n_traced(A->client, 'u') == 0 && fake_step(A->client))
		;
	fake_tree_set(node_of(A, "a"), "__REVOKE__");
	fake_run_all();
	is_int(zkl_lock_revocations(hold_of(A, "a")->lock), 1, "the answer does not replace a request to release the lock");
	is_str(data_of(A), "party 0 keep=use, 3 times", "a request to release the lock is replaced in the data by the answer");
	scene_end("data only go forward");
}

static void
test_answer_lost(void)
{
	scene_begin(2);
	play_begin();
	play_act("A keep, A lock, B lock!, B until! u", true);
	fake_count(A->client);
	fake_fault(A->client, 2, FAULT_THROTTLE);
	fake_run_all();
	is_str(data_of(A), "party 0 keep=ask, 1 times", "a server that is busy does not take the answer");
	fake_advance(1000);
	is_str(data_of(A), "party 0 keep=use, 2 times", "an answer that a busy server did not take is repeated after a second");
	scene_end(NULL);
}

static void
test_unreadable(void)
{
	scene_begin(2);
	play_begin();
	play_act("B lock, B leave, A keep, A lock!", true);
	fake_fault(A->client, 3, FAULT_NO_AUTH);
	fake_run_all();
	play_act("A release", true);
	is_int(nodes_of(A, "a"), 0, "a lock whose node cannot be read is not kept");
	scene_end(NULL);
}

/* A lock that is taken again is not given up, nor is the timer set for that. */
static void
test_taken_again(void)
{
	scene_begin(1);
	play_begin();
	play_act("A keep 300, A lock, A release, A lock", true);
	fake_stall(300);
	while (fake_timer(A->client) <= fake_now())
		if (!fake_ring(A->client) || fake_timer(A->client) == fake_now())
			break;
	ok(fake_timer(A->client) > fake_now(), "the time of the keeper of a lock that is taken again sets no timer again");
	is_int(mode_of(A, "a"), X, "the time of the keeper of a lock that is taken again passes without consequence");
	scene_end(NULL);
}

#define N_IN_USE 20
#define N_KEPT 40

static char many[N_IN_USE + N_KEPT][256];

/* A writer queues behind many sharers, and has sent its first questions. */
static void
begin_many(void)
{
	scene_begin(1);
	forget(lock_now(A, "a", X));
	release_all(A);
	fake_run_all();
	for (unsigned i = 0; i < N_IN_USE + N_KEPT; i++)
	{
		char		child[64];

		snprintf(child, sizeof(child), "_c_%08x-2222-3333-4444-55558%07x-__READ__", i + 1000, i);
		strcpy(many[i], foreign_node("a", child, 99));
		fake_tree_set(many[i], i < N_IN_USE ? "x keep=use" : "x keep=may");
	}
	fake_count(A->client);
	ask_for(A, "a", X);
	while (fake_n_traced(A->client, 'g') == 0 && fake_step(A->client))
		;
}

static int
n_asked(void)
{
	int			n = 0;

	for (int i = 0; i < N_IN_USE + N_KEPT; i++)
	{
		const FakeNode *node = fake_tree_find(many[i]);

		n += node && strcmp(node->data, "x keep=ask") == 0;
	}
	return n;
}

static void
test_many(void)
{
	begin_many();
	is_int(fake_n_traced(A->client, 'g'), 16, "a writer behind many sharers reads 16 at a time");
	fake_run_all();
	is_int(n_asked(), N_KEPT, "a writer behind many sharers has asked each in the end");
	is_int(fake_n_traced(A->client, 'm'), 3, "a writer behind many sharers asks in three multis, because none is asked in the first sixteen");
	is_int(fake_n_traced(A->client, 'g'), N_IN_USE + N_KEPT, "a writer behind many sharers asks after one read of each");
	scene_end(NULL);

	begin_many();
	while (fake_n_traced(A->client, 'm') == 0 && fake_step(A->client))
		;
	fake_tree_set(many[N_IN_USE + N_KEPT - 2], "x keep=use");
	fake_tree_delete(many[N_IN_USE + N_KEPT - 6]);
	fake_run_all();
	is_int(n_asked(), N_KEPT - 2, "one that answered or ended before the multi does not keep others from being asked");
	is_str(fake_tree_find(many[N_IN_USE + N_KEPT - 2])->data, "x keep=use", "the answer of the one that answered before the multi stays");
	is_int(fake_n_traced(A->client, 'm'), 5, "the others of the multi that has failed are asked again");
	is_int(fake_n_traced(A->client, 'g'), N_IN_USE + N_KEPT, "the others of the multi that has failed are asked again without another read");
	scene_end(NULL);

	begin_many();
	fake_fault(A->client, fake_counted(A->client) + 1, FAULT_THROTTLE);
	fake_run_all();
	is_int(fake_fault_happened(A->client), true, "the first multi is throttled");
	is_int(n_asked(), N_KEPT - 16, "a throttled multi costs its questions, not all of them");
	fake_advance(1000);
	is_int(n_asked(), N_KEPT, "the questions of a throttled multi are asked again");
	scene_end(NULL);

	begin_many();
	fake_disconnect(A->client);
	fake_count(A->client);
	fake_run_all();
	is_str(fake_trace(A->client), "", "a writer that is disconnected asks for none");
	fake_connect(A->client);
	fake_run_all();
	is_int(n_asked(), N_KEPT, "a writer that was disconnected asks for each on the next connection");
	is_int(fake_n_traced(A->client, 'g'), N_IN_USE + N_KEPT, "a writer that was disconnected has read each once");
	scene_end(NULL);
}

/* The names of other programs, with all values of the bits that mean something in zklock's. */
static void
test_many_foreign(void)
{
	scene_begin(1);
	forget(lock_now(A, "a", X));
	release_all(A);
	fake_run_all();
	for (unsigned i = 0; i < 100; i++)
	{
		char		child[64];

		if (i % 2)
			snprintf(child, sizeof(child), "_c_%08x-2222-4333-%x444-5555%x%07x-__READ__", i + 1000, 8 + i / 2 % 4, i / 2 % 16, i);
		else
			snprintf(child, sizeof(child), "%08x22224333%x4445555%x%07x__rlock__", i + 1000, 8 + i / 2 % 4, i / 2 % 16, i);
		foreign_node("a", child, 99);
	}
	fake_count(A->client);
	ask_for(A, "a", X);
	fake_run_all();
	is_str(fake_trace(A->client), "clw", "a waiter behind 100 nodes of other programs reads one of them");
	fake_disconnect(A->client);
	fake_count(A->client);
	fake_connect(A->client);
	fake_run_all();
	is_str(fake_trace(A->client), "lw", "a waiter behind 100 nodes of other programs reads none of them again on a new connection");
	scene_end(NULL);
}

int
main(void)
{
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	test_versions();
	test_answer_lost();
	test_unreadable();
	test_taken_again();
	test_many();
	test_many_foreign();
	return done();
}
