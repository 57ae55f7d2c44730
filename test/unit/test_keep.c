/*-------------------------------------------------------------------------
 *
 * test_keep.c
 *		Kept locks: a session takes a lock that it has released again without a request,
 *		and gives it up as soon as another session wants it.
 *
 * The lease is 2 s, a proof is due after 1 s, and a queue of one is looked at each 0.5 s.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "letters.h"
#include "observed.h"
#include "play.h"

#define T SCENE_TIMEOUT_MS

static const Play plays[] = {
	/* again */
	{"the mark is in the data from the create", "A keep, A lock!, A apply, A word may"},
	{"the node is read right after the grant, with a watch", "B lock, B leave, A keep, A lock, A sends clw, A watches 1"},
	{"a released lock stays in the queue, and is not held",
	"A keep, A lock, A release, A has 0, A nodes 1, A word may, A lost 0"},
	{"... and is taken again without a request", "A keep, A lock, A release, A lock, A has X, A sends , A nodes 1"},
	{"... and released again without one", "A keep, A lock, A release, A lock, A release, A sends , A nodes 1"},
	{"... also by an attempt, and shared", "A keep, A share, A release, A tryshare, A has S, A sends , A nodes 1"},
	{"a session that does not keep deletes its node", "A lock, A release, A nodes 0"},
	{"a kept node is given up after the time of its keeper", "A keep 300, A lock, A release, A pass 299, A nodes 1, A pass 1, A nodes 0"},
	{"giving up everything that is kept", "A keep, A lock, A release, A lock b, A release, A leavekept, A nodes 0"},

	/* asked */
	{"another session gets at once what is only kept", "A keep, A lock, A release, B lock, B has X, A nodes 0"},
	{"... asking once: one read and one change of the data", "A keep, A lock, A release, B lock, B sends clgwulwl"},
	{"... also an attempt", "A keep, A lock, A release, B try, B has X, A nodes 0"},
	{"... and a sharer, of a writer's", "A keep, A lock, A release, B share, B has S, A nodes 0"},
	{"sharers do not ask sharers", "A keep, A share, A release, B share, B has S, A nodes 1, A word may"},
	{"a writer asks all sharers",
	"A keep, B keep, C keep, A share, B share, C share, A release, B release, C release, D lock, D has X, A nodes 0, B nodes 0, C nodes 0"},
	{"the owner of a lock in use answers, and does not keep it", "A keep, A lock, B lock, A word use, A has X, A release, A nodes 0, B has X"},
	{"an attempt is refused at the answer", "A keep, A lock, B try, B is busy, A word use, A release, A nodes 0"},
	{"... also one that comes later, without a question",
	"A keep, A lock, B try, B is busy, B try, B is busy, A has X, A word use"},
	{"a lock that was asked for is not kept by its session for a minute",
	"A keep, A lock, A release, B lock, B leave, A pass 59000, A lock, A word no, A release, A nodes 0, A pass 1001, A lock, A word may"},
	{"... also if it was in use", "A keep, A lock, B try, A release, A lock, A word no"},
	{"another lock is kept meanwhile", "A keep, A lock, B lock, A lock b, A release b, A nodes 2"},
	{"a waiter may keep what it is granted later, so it is asked, too",
	"A lock, B keep, B lock, C lock, A leave, B has X, B word use, B release, B nodes 0, C has X"},

	/* another mode, and arrays */
	{"another mode deletes the kept node first", "A keep, A share, A release, A lock, A has X, A nodes 1"},
	{"... also the weaker one", "A keep, A lock, A release, A share, A has S, A nodes 1"},
	{"an array deletes kept nodes first, and is not kept", "A keep, A lock, A release, A lock ab, A has XX ab, A nodes 2, A release, A nodes 0"},
	{"a lock that was upgraded is not kept", "A keep, A share, A lock, A has X, A release, A nodes 0"},
	{"a lock that was downgraded is not kept", "A keep, A lock, A downgrade, A has S, A release, A nodes 0"},

	/* loss */
	{"a kept node that is deleted by hand is no loss", "A keep, A lock, A release, A delete, A lost 0, A lock, A has X, A nodes 1"},
	{"a session that expires while it keeps loses nothing", "A keep, A lock, A release, A expire, A connect, A state expired, A lost 0"},
	{"a session that keeps has no deadline of its own", "A keep, A lock, A release, A disconnect, A pass 5999, A state suspended"},

	/* the lease */
	{"the re-acquire needs a proof if less than T/6 of the lease is left",
	"A keep, A lock, A release, A pass 1500, A lock, A has X, A nodes 1"},

	/* connections */
	{"a question during an outage is answered after it", "A keep, A lock, A release, A disconnect, B lock, B is pending, A connect, B has X, A nodes 0"},
	{"... also if the lock is in use", "A keep, A lock, A disconnect, B lock, B is pending, A connect, A word use, A release, B has X"},
	{"the node is read on each new connection", "A keep, A lock, A release, A disconnect, A connect, A sends w, A watches 1"},
	{"a lock that is released during an outage is not kept", "A keep, A lock, A disconnect, A release, A connect, A nodes 0"},
};

int
main(void)
{
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	return done();
}
