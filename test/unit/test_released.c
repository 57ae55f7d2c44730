/*-------------------------------------------------------------------------
 *
 * test_released.c
 *		A wait for a released lock or permit, whose node still exists
 *		because the holder's connection is down, is no edge of a deadlock; a wait
 *		for what such a session still holds is one.
 *
 * A and B are sessions of one server, C is on another.  C waits for B, whose
 * connection is down; B waits for a row of A, and A for C.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "letters.h"
#include "waiters.h"

static bool
any_verdict(void)
{
	return deadlock_of(A) || deadlock_of(B) || deadlock_of(C);
}

static void
begin(void)
{
	scene_begin(3);
	waiters_begin("aab");
	forget(lock_now(C, "y", X));
}

/* B, disconnected, has already released what the test releases; now A and B wait. */
static void
close_circle(void)
{
	wait_locally(B, A);
	lock_now(A, "y", X);
	publish_all();
	publish_all();
}

static void
has_no_victim(const char *name)
{
	close_circle();
	ok(!any_verdict(), "%s: no deadlock", name);
	ok(!is_truly_deadlocked(A), "%s: no session is truly deadlocked", name);
	heal();
	publish_all();
	ok(pending_of(C) == NULL, "%s: the wait ends after the reconnect", name);
	scene_end(NULL);
}

static void
has_victim(const char *name)
{
	close_circle();
	ok(any_verdict(), "%s: a deadlock is found", name);
	scene_end(NULL);
}

/* B holds x in one mode and reduces it to another one; C wants x. */
static void
reduced(ZklMode held, ZklMode to, ZklMode wanted)
{
	begin();
	forget(lock_now(B, "z", X));
	forget(lock_now(B, "x", held));
	lock_now(C, "x", wanted);
	fake_disconnect(B->client);
	if (to != held)
		reduce(B, "x", to);
}

static void
test_locks(void)
{
	begin();
	forget(lock_now(B, "x", X));
	lock_now(C, "x", X);
	fake_disconnect(B->client);
	reduce(B, "x", NONE);
	has_no_victim("the only lock released");
	reduced(X, NONE, X);
	has_no_victim("a lock released, another one held");
	reduced(X, NONE, S);
	has_no_victim("a lock released, another one held by a sharer");
	reduced(S, NONE, X);
	has_no_victim("a shared lock released");
	reduced(X, S, S);
	has_no_victim("a downgrade, with a waiting sharer");
	reduced(X, S, X);
	has_victim("a downgrade, with a waiting writer");
	reduced(X, X, X);
	has_victim("a lock still held");
	reduced(S, S, X);
	has_victim("a shared lock still held");
}

/* B held this many of two permits, and releases some; C wants one. */
static void
permits(int held, int released, const char *lock)
{
	begin();
	forget(lock_now(B, lock, X));
	for (int i = 0; i < 2; i++)
		forget(permit_now(i < held ? B : A, "p", 2));
	permit_now(C, "p", 2);
	fake_disconnect(B->client);
	for (int i = 0; i < released; i++)
		release_permit(B, "p");
}

static void
test_permits(void)
{
	permits(2, 2, "z");
	has_no_victim("two permits released");
	permits(1, 1, "p");
	has_no_victim("one permit, with a lock of that name held");
	permits(2, 1, "z");
	has_no_victim("one of two permits released");
	permits(1, 0, "z");
	has_victim("a permit still held");
	permits(2, 0, "z");
	has_victim("all permits still held");
}

/* B's node in the queue is given up while the connection is down. */
static void
test_queued_node(void)
{
	scene_begin(4);
	waiters_begin("aabb");
	forget(lock_now(C, "y", X));
	forget(lock_now(&parties[3], "x", S));
	lock_now(B, "x", X);
	lock_now(C, "x", S);
	fake_disconnect(B->client);
	give_up_all(B);
	has_no_victim("a node in the queue, given up");
}

int
main(void)
{
	test_locks();
	test_permits();
	test_queued_node();
	return done();
}
