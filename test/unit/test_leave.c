/*-------------------------------------------------------------------------
 *
 * test_leave.c
 *		Promises about nodes that are given up together.
 *
 * Promise: 3.5
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "letters.h"
#include "play.h"

static const char *const abc[] = {"a", "b", "c"};

/* A session holds three names, and its submissions count from now. */
static void
begin(void)
{
	scene_begin(1);
	for (int i = 0; i < 3; i++)
		forget(lock_now(A, abc[i], X));
	fake_count(A->client);
}

static void
release_together(void)
{
	zkl_releases_begin(A->session);
	release_all(A);
	zkl_releases_end(A->session);
}

#define THREE "A lock a, A lock b, A lock c, "

static const Play plays[] = {
	{HERE, "locks that are released together cost one multi, one lock a delete, and none no request",
	THREE "A release, A sends m, A nodes 0, A lock, A release, A sends d, A nodes 0, A release, A sends"},
	{HERE, "giving up a request for several names costs one multi", THREE "B lock abc, B giveup, B sends m, B nodes 0"},
	{HERE, "if another client has deleted a node, the others are deleted together",
	THREE "A delete! a, A release, A sends mdm, A nodes 0"},
	{HERE, "if another client has deleted the second node, the others are deleted together", THREE "A delete! b, A release, A sends mdm, A nodes 0"},
	{HERE, "if another client has deleted the last node, the others are deleted together", THREE "A delete! c, A release, A sends mdm, A nodes 0"},
	{HERE, "if another client has deleted two nodes, each of the others is deleted alone", THREE "A delete! a, A delete! c, A release, A sends mdmdd, A nodes 0"},
	{HERE, "if the answer is lost, nothing is sent before the next connection", THREE "A fault apply-and-drop, A release, A sends m, A connect, A nodes 0"},
	{HERE, "if the multi is refused by a busy server, nothing is sent before a pause", THREE "A fault throttle, A release, A sends m, A pass 1000, A nodes 0"},
	{HERE, "kept locks whose time has passed are given up together", "A keep 300, A lock, A release, A lock b, A release, A pass 300, A sends m, A nodes 0"},
	{HERE, "kept locks that make room for an array are given up together",
	"A join nodes=3, A keep, " THREE "A release, A lock def, A is ok, A has XXX def, A nodes 3, A sends mmlllcccmg"},
	{HERE, "a release without a connection is sent after the reconnect",
	THREE "A disconnect, A release, A sends , A connect, A nodes 0"},
};

static void
test_downgrade(void)
{
	begin();
	zkl_releases_begin(A->session);
	reduce(A, "a", NONE);
	reduce(A, "b", S);
	reduce(A, "c", NONE);
	is_str(fake_trace(A->client), "m", "a downgrade does not wait for releases");
	zkl_releases_end(A->session);
	fake_run_all();
	is_str(fake_trace(A->client), "mm", "the other locks are released together");
	ok(nodes_of(A, NULL) == 1 && mode_of(A, "b") == S, "the downgraded lock is kept");
	scene_end("exclusion, some released");
}

/* Counts the log lines about this lock's refused delete since the last call. */
static int
logged_refusals(const char *lock)
{
	char		line[512];
	int			n = 0;

	while (zkl_log_take(line, sizeof(line)))
		n += strstr(line, "an ACL forbids to delete ") && strstr(line, lock);
	return n;
}

static void
test_refused(void)
{
	begin();
	logged_refusals("");
	fake_quirks.deny = path_of("b");
	release_together();
	fake_run_all();
	is_int(nodes_of(A, NULL), 1, "if an ACL protects one node, the other nodes are deleted");
	forget(lock_now(A, "d", X));
	forget(lock_now(A, "e", X));
	fake_count(A->client);
	release_together();
	fake_run_all();
	is_str(fake_trace(A->client), "m", "later releases are sent without the protected node");
	fake_advance(5000);
	is_int(nodes_of(A, NULL), 1, "the protected node stays");
	is_int(logged_refusals(path_of("b")), 1, "the refused delete is logged once");
	fake_quirks.deny = NULL;
	fake_advance(5000);
	is_int(nodes_of(A, NULL), 0, "the delete is repeated when the ACL allows it");
	scene_end(NULL);
}

static void
test_connection(void)
{
	begin();
	zkl_releases_begin(A->session);
	release_all(A);
	fake_disconnect(A->client);
	fake_connect(A->client);
	fake_run_all();
	zkl_releases_end(A->session);
	fake_run_all();
	is_str(fake_trace(A->client), "m", "a reconnect before the answer costs no further request");
	is_int(nodes_of(A, NULL), 0, "all nodes are deleted");
	scene_end(NULL);

	begin();
	zkl_releases_begin(A->session);
	release_all(A);
	fake_expire(A->client);
	fake_disconnect(A->client);
	fake_connect(A->client);
	fake_run_all();
	zkl_releases_end(A->session);
	fake_run_all();
	is_int(nodes_of(A, NULL), 0, "no node is left after the end of the session");
	scene_end(NULL);
}

int
main(void)
{
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	test_downgrade();
	test_refused();
	test_connection();
	return done();
}
