/*-------------------------------------------------------------------------
 *
 * test_find_deadlock.c
 *		Which deadlock a search finds in what it has read, and who must fail.
 *
 * The cases that broke simpler rules: readers behind a writer, requests for several names,
 * mutexes, upgrades, permits, places, and local waiters whose deletes are pending.
 *
 * Promise: 7.2
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "situation.h"
#include "tap.h"

/* Two sessions wait for what the other one holds. */
static void
test_plain(void)
{
	situation_begin();
	queue("x", "1W 2W");
	queue("y", "2W 1W");
	waits(1, "y");
	is_str(found(1), "nothing", "one waits, the other is not known to: no deadlock");
	waits(2, "x");
	is_str(found(2), "victim 2: 2>1", "a cycle; the newest report is the victim's");
	is_str(found(1), "victim 2: 1>2", "the other session finds the same victim");
	is_str(checks(1), "reports 1 2, nodes y/1 y/2 x/2 x/1", "what a verdict must check");
	owner_of_report(2, 7);
	is_str(found(1), "nothing", "a report in the name of another session does not count");

	situation_begin();
	queue("x", "1W 2W 3W");
	queue("y", "2W 1W");
	waits(2, "x");
	waits(1, "y");
	waits(3, "x");
	is_str(found(3), "nothing", "a session that waits for a deadlock is not in it");
	is_str(found(2), "victim 1: 2>1", "a session that waits for a deadlock is not its victim");
	forget_node("x", 2);
	is_str(found(1), "nothing", "a report whose node is gone");

	situation_begin();
	queue("x", "2R 3R 1W");
	queue("y", "1W 2W");
	queue("z", "4W 3W");
	queue("w", "3W 4W");
	waits(2, "y");
	waits(1, "x");
	waits(3, "z");
	waits(4, "w");
	is_str(found(1), "victim 1: 1>2", "the victim of a deadlock that waits for another one");
}

/* 3 of the ensemble's design page: the cycle passes through a waiting writer's place. */
static void
test_reader_behind_writer(void)
{
	situation_begin();
	queue("x", "1R 2W 3R");
	queue("y", "3W 1W");
	waits(1, "y");
	waits(3, "x");
	waits(2, "x");
	is_str(found(3), "victim 3: 3>2>1", "a reader behind a writer that waits for a reader");
	is_str(found(2), "victim 3: 2>1>3", "the writer only has a place: it is not the victim");
}

/* Behind a writer that waits for all nodes before it, one edge to it stands for edges to them. */
static void
test_writer_between(void)
{
	situation_begin();
	queue("x", "9W 2W 3W 1W");
	queue("y", "9W 3W");
	queue("z", "1W 2W");
	waits(2, "x z");
	waits(1, "x");
	is_str(found(1), "victim 1: 1>2", "a writer between that reports nothing");
	waits(3, "x y");
	is_str(found(1), "victim 1: 1>3>2", "the cycle passes through the writer between");
	is_str(found(2), "victim 1: 2>1>3", "the writer between is not the victim of the cycle");
	forget_node("y", 3);
	is_str(found(1), "victim 1: 1>2", "a writer that is leaving does not hide who is before it");
}

/* What is found in one round of the search counts in that round alone. */
static void
test_rounds(void)
{
	situation_begin();
	queue("x", "2W 1W");
	queue("y", "3R 4R 2W");
	queue("z", "2W 3W");
	mutex("s", "4");
	permits("s", "1 5 4");
	queue("p", "5W 6W");
	queue("q", "6W 5W");
	waits(1, "x");
	waits(2, "y");
	waits(3, "z");
	waits(4, "*s/2");
	waits(5, "q");
	waits(6, "p");
	is_str(found(1), "nothing", "a session waits for a deadlock, and seemed to be in it by a permit");
	is_str(found(2), "victim 3: 2>3", "the deadlock that the session waits for has another victim");
}

static void
test_several_names(void)
{
	situation_begin();
	queue("a", "1W 2W");
	queue("b", "3W 1W");
	queue("y", "2W 3W");
	waits(2, "a");
	waits(3, "y");
	waits(1, "a b");
	is_str(found(2), "victim 1: 2>1>3", "a request for several names holds what is granted of it");

	situation_begin();
	queue("a", "9W 1W 2W");
	queue("b", "3W 1W");
	queue("y", "2W 3W");
	waits(2, "a");
	waits(3, "y");
	waits(1, "a b");
	is_str(found(1), "victim 3: 1>3>2", "a request for several names holds nothing where it waits behind another session");
}

static void
test_semaphores(void)
{
	situation_begin();
	mutex("s", "1 2");
	permits("s", "3 1");
	queue("x", "2W 3W");
	waits(3, "x");
	waits(2, "%s");
	waits(1, "*s/1");
	is_str(found(1), "victim 2: 1>3>2", "the holder of a mutex is no victim");
	is_str(checks(1), "reports 1 3 2, nodes s*/1 s*/3 x/3 x/2 s%/2 s%/1", "its checks");
	waits(1, "*s/2");
	is_str(found(2), "nothing", "a permit is left");

	situation_begin();
	mutex("s", "1");
	permits("s", "2 3 1");
	queue("x", "1W 2W");
	waits(2, "x");
	waits(1, "*s/2");
	is_str(found(1), "nothing", "any of two permits will do");
	queue("x", "1W 2W 3W");
	waits(3, "x");
	is_str(found(1), "victim 3: 1>2 and 3", "both owners wait");
	is_str(checks(1), "reports 1 2 3, nodes s*/1 s*/2 x/2 x/1 s*/1 s*/3 x/3 x/1",
		   "a verdict checks all permits");
	permits("s", "2 3 9 1");
	waits(1, "*s/3");
	is_str(found(1), "nothing", "an owner that is not known to wait");
	permits("s", "2 3 - 1");
	is_str(found(1), "nothing", "a permit that does not show its owner");
	permits("s", "2 3 1 1");
	is_str(found(1), "victim 3: 1>2 and 3", "an own permit is no help");

	situation_begin();
	mutex("s", "1");
	permits("s", "2 3 1");
	queue("x", "1W 2W");
	queue("z", "4W 3W");
	queue("w", "3W 4W");
	waits(2, "x");
	waits(3, "z");
	waits(4, "w");
	waits(1, "*s/2");
	is_str(found(1), "nothing", "an owner is in another deadlock, and its victim will free a permit");
	is_str(found(3), "victim 4: 3>4", "the other deadlock of the owner is found");
}

static void
test_upgrades(void)
{
	situation_begin();
	queue("x", "1R 2W 3R 1W");
	waits(1, "x");
	waits(2, "x");
	waits(3, "x");
	is_str(found(1), "nothing", "an upgrade does not wait for a reader behind a writer");

	situation_begin();
	queue("x", "1R 3R 2W 1W");
	queue("y", "1W 3W");
	waits(3, "y");
	waits(1, "x");
	is_str(found(3), "victim 1: 3>1", "it waits for a reader before the writer");

	situation_begin();
	queue("x", "1R 2R 1W 2W");
	waits(1, "x");
	waits(2, "x");
	is_str(found(2), "victim 2: 2>1", "two upgrades");

	situation_begin();
	queue("x", "1R 2R 1W");
	queue("y", "1W 2W");
	waits(1, "x");
	waits(2, "y");
	is_str(found(1), "victim 2: 1>2", "an upgrade, and a reader that waits for the session");
	queue("x", "1W 2R 1W");
	is_str(found(1), "nothing", "a released node of the session itself is deleted");
}

static void
test_local_waiters(void)
{
	situation_begin();
	queue("x", "1W 2W");
	queue("y", "3W 1W");
	waits(2, "x");
	local(3, 2, "y", false);
	waits(1, "y");
	is_str(found(1), "victim 1: 1>3>2", "a session that waits in its server");
	is_str(checks(1), "reports 1 2(3), nodes y/1 y/3 x/2 x/1",
		   "the report that lists it is checked");
	holds(3, 2, "");
	is_str(found(1), "nothing", "its lock is released, and the delete pending");
	holds(3, 2, "z");
	is_str(found(1), "nothing", "it holds another lock");
	holds(3, 2, "y-");
	is_str(found(1), "victim 1: 1>3>2", "it holds the lock shared, the other one wants it exclusively");
	queue("y", "3W 1R");
	is_str(found(1), "nothing", "both share it: its node is to become a reader's");

	situation_begin();
	queue("x", "1W 2W");
	queue("y", "3W 1W");
	waits(2, "x");
	local(3, 2, "y", false);
	waits(4, "x");
	local(3, 4, "", false);
	waits(1, "y");
	is_str(found(1), "victim 1: 1>3>2", "behind two sessions; each report stands for itself");

	situation_begin();
	mutex("s", "1");
	permits("s", "3 3 1");
	queue("x", "1W 2W");
	waits(2, "x");
	local(3, 2, "s* s*", false);
	waits(1, "*s/2");
	is_str(found(1), "victim 1: 1>3>2 and 3", "a local waiter with two permits");
	holds(3, 2, "s*");
	is_str(found(1), "nothing", "it has released one of them");

	/* 3 has the only permit, and waits for 2 and 4, of which only 4 is a member. */
	situation_begin();
	mutex("s", "1");
	permits("s", "3 1");
	queue("x", "1W 4W");
	waits(4, "x");
	waits(2, "y");
	local(3, 2, "s*", false);
	local(3, 4, "s*", false);
	waits(1, "*s/1");
	is_str(found(1), "victim 1: 1>3>4", "a local waiter with a permit, behind two sessions");
	is_str(found(4), "victim 1: 4>1>3", "a local waiter with a permit, behind two sessions, found by another member");
	is_str(checks(1), "reports 1 4(3), nodes s*/1 s*/3 x/4 x/1", "the verdict checks the report of the local waiter's member");
	holds(3, 4, "z");
	is_str(found(1), "nothing", "a local waiter with a permit is in no deadlock if the member's report lists other holds");
}

/* Nobody in the ensemble holds anything that another one waits for. */
static void
test_places(void)
{
	situation_begin();
	queue("x", "4W 1W");
	queue("y", "3W 2W");
	waits(1, "x");
	local(3, 1, "y", true);
	waits(2, "y");
	local(4, 2, "x", true);
	is_str(found(1), "place 2: 1>4>2>3", "the newest of those that keep a place gives it up");
	is_str(found(2), "place 2: 2>3>1>4", "the newest of those that keep a place finds the deadlock itself");
	queue("x", "4W 5W 1W");
	waits(1, "x");
	waits(5, "x");
	is_str(found(1), "place 2: 1>4>2>3", "a session that only others of the ensemble wait for stays");
	only_for_place(3, 1, false);
	is_str(found(2), "victim 1: 2>3>1>4", "a local waiter that needs more than the place");
}

int
main(void)
{
	test_plain();
	test_reader_behind_writer();
	test_writer_between();
	test_rounds();
	test_several_names();
	test_semaphores();
	test_upgrades();
	test_local_waiters();
	test_places();
	return done();
}
