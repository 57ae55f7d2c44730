/*-------------------------------------------------------------------------
 *
 * test_local_session.c
 *		The leader refuses a multi because it knows no such session: a local one, whose server
 *		is a follower, or one that is about to expire.
 *
 * Promise: 4.4
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "play.h"
#include "tap.h"

static void
forget_creates(const Step *step)
{
	fake_quirks.unknown_creates = atoi(step->argument);
}

static void
forget_checks(const Step *step)
{
	fake_quirks.unknown_checks = atoi(step->argument);
}

/* The leader refuses so many of the next multis. */
static const PlayVerb verbs[] = {
	{"unknown", .act = forget_creates},
	{"uncheck", .act = forget_checks},
	{.word = NULL}
};

static const Play plays[] = {
	{HERE, "a session that the leader has never known is a local one",
	"all unknown 9, A lock ab, A is local, all unknown 0, A nodes 0"},
	{HERE, "a session that expires gets no proof either, and the call queues again in another one",
		"all unknown 9, all uncheck 99, A lock ab, A is pending, A pass 1000, A is pending, A expire, A connect,"
	" A state expired, A is lost"},
	{HERE, "one refusal, at a change of the leader, is repaired by the next create",
	"all unknown 1, A lock ab, A has XX ab"},
	{HERE, "the same with a lost connection in between",
	"all unknown 1, all uncheck 99, A lock ab, A is pending, A disconnect, all uncheck 0, A connect, A has XX ab"},
	{HERE, "a refusal counts only until a create succeeds",
		"B lock b, all unknown 1, A lock ab, A is pending, A pass 3000, A disconnect, A delete a, all unknown 1, A connect,"
	" A is pending, B release b, A has XX ab"},
	{HERE, "a call that gives up between two refusals leaves no node",
	"all unknown 1, all uncheck 99, A lock ab, A giveup, A pass 100, all uncheck 0, A pass 6000, A nodes 0"},
};

int
main(void)
{
	play_verbs = verbs;
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	return done();
}
