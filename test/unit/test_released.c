/*-------------------------------------------------------------------------
 *
 * test_released.c
 *		Promise 7.2: a wait for a released lock or permit, whose node still exists
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

#include "waiters.h"

#define X ZKL_MODE_EXCLUSIVE
#define S ZKL_MODE_SHARED
#define NONE ZKL_MODE_NONE

static Party *const A = &parties[0];
static Party *const B = &parties[1];
static Party *const C = &parties[2];

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
is_left_alone(const char *name)
{
	close_circle();
	ok(!any_verdict(), "%s: no deadlock", name);
	ok(!is_truly_deadlocked(A), "%s: nor is it one", name);
	heal();
	publish_all();
	ok(pending_of(C) == NULL, "%s: the wait ends when the connection is back", name);
	scene_end(NULL);
}

static void
is_found(const char *name)
{
	close_circle();
	ok(any_verdict(), "%s: a deadlock", name);
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
	is_left_alone("the only lock released");
	reduced(X, NONE, X);
	is_left_alone("a lock released, another held");
	reduced(X, NONE, S);
	is_left_alone("the same for a sharer");
	reduced(S, NONE, X);
	is_left_alone("a shared lock released");
	reduced(X, S, S);
	is_left_alone("a downgrade, for a sharer");
	reduced(X, S, X);
	is_found("a downgrade, for a writer");
	reduced(X, X, X);
	is_found("a lock still held");
	reduced(S, S, X);
	is_found("a shared lock still held");
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
	is_left_alone("two permits released");
	permits(1, 1, "p");
	is_left_alone("one permit, with a lock of that name held");
	permits(2, 1, "z");
	is_left_alone("one of two permits released");
	permits(1, 0, "z");
	is_found("a permit still held");
	permits(2, 0, "z");
	is_found("all permits still held");
}

/* B's place in the queue is given up while the connection is down. */
static void
test_place(void)
{
	scene_begin(4);
	waiters_begin("aabb");
	forget(lock_now(C, "y", X));
	forget(lock_now(&parties[3], "x", S));
	lock_now(B, "x", X);
	lock_now(C, "x", S);
	fake_disconnect(B->client);
	give_up_all(B);
	is_left_alone("a place in the queue, given up");
}

int
main(void)
{
	test_locks();
	test_permits();
	test_place();
	return done();
}
