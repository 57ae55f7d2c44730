/*-------------------------------------------------------------------------
 *
 * test_scan.c
 *		Promises about scans: they return everything in the queues, whatever fails
 *		while they read, and whatever changes meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scene.h"
#include "recipe/scan/scan.h"

#define X ZKL_MODE_EXCLUSIVE
#define S ZKL_MODE_SHARED
#define T SCENE_TIMEOUT_MS
#define WINDOW 100

#define SEMAPHORES "/zklock/semaphores"
#define UUID "_c_0a1b2c3d-1111-2222-3333-4444555566"
#define HEX "0a1b2c3d1111222233334444555566"

static Party *const A = &parties[0];
static Party *const B = &parties[1];
static Party *const C = &parties[2];

/* Sessions of other programs. */
#define F 77
#define G 78


/* Returns whether the session of A keeps a scan. */
static bool
has_scans(void)
{
	return *(ZklScan **) zkl__state(A->session, ZKL_STATE_SCANS) != NULL;
}


/*
 * Nodes in the ensemble
 */

static void
make(const char *path, const char *data, int64_t session)
{
	char	   *made;
	int64_t		unused;

	fake_tree_create(path, data, (int) strlen(data),
					 session ? ZKL_CREATE_EPHEMERAL : ZKL_CREATE_PERSISTENT,
					 session, &made, &unused);
	free(made);
}

static void
make_locks(void)
{
	forget(lock_now(A, "held", X));
	forget(lock_now(A, "shared", S));
	forget(lock_now(B, "shared", S));
	lock_now(C, "shared", X);
	forget(lock_now(A, "upgraded", S));
	forget(lock_now(A, "upgraded", X));
	forget(lock_now(B, "free", X));
	reduce(B, "free", ZKL_MODE_NONE);
	fake_run_all();
	make(path_of("foreign"), "", 0);
	make(SCENE_LOCKS "/foreign/" HEX "01__lock__0000000004", "worker", F);
	make(SCENE_LOCKS "/foreign/" UUID "02-lock-0000000003", "\x7f\x01\x02\x03", G);
	make(SCENE_LOCKS "/foreign/" HEX "03__rlock__0000000005", "", F);
	make(SCENE_LOCKS "/foreign/lease_holder", "junk", 0);
	make(SCENE_LOCKS "/foreign/lock-", "junk", 0);
}

static void
make_semaphores(void)
{
	make(SEMAPHORES, "", 0);
	make(SEMAPHORES "/cur", "2", 0);
	make(SEMAPHORES "/cur/locks", "", 0);
	make(SEMAPHORES "/cur/leases", "", 0);
	make(SEMAPHORES "/cur/leases/" UUID "11-lease-0000000000", "one", F);
	make(SEMAPHORES "/cur/leases/" UUID "12-lease-0000000001", "two", G);
	make(SEMAPHORES "/cur/leases/" UUID "13-lease-0000000002", "three", F);
	make(SEMAPHORES "/cur/locks/" UUID "14-lock-0000000002", "three", F);
	make(SEMAPHORES "/cur/locks/" UUID "15-lock-0000000003", "four", G);
	make(SEMAPHORES "/unsized", "192.0.2.1", 0);
	make(SEMAPHORES "/unsized/locks", "", 0);
	make(SEMAPHORES "/unsized/leases", "", 0);
	make(SEMAPHORES "/unsized/leases/" UUID "21-lease-0000000000", "one", F);
	make(SEMAPHORES "/unsized/leases/" UUID "22-lease-0000000001", "two", G);
	make(SEMAPHORES "/unsized/locks/" UUID "23-lock-0000000001", "two", G);
}

static const char everything[] =
"lock foreign X+ curator \x7f\x01\x02\x03\n"
"lock foreign X1 kazoo worker\n"
"lock foreign S2 kazoo \n"
"lock held X+ zklock party 0\n"
"lock shared S+ zklock party 0\n"
"lock shared S+ zklock party 1\n"
"lock shared X1 zklock party 2\n"
"lock upgraded S+ zklock party 0\n"
"lock upgraded X+ zklock party 0\n"
"semaphore cur P+ curator one\n"
"semaphore cur P+ curator two\n"
"semaphore cur P1 curator three\n"
"semaphore cur P2 curator four\n"
"semaphore unsized P+ curator one\n"
"semaphore unsized P1 curator two\n";


/*
 * Results of a scan
 */

static char *reported_text;

/* One line for each entry; X, S or P, and a plus or the position in the queue. */
static const char *
reported(ZklScan *scan)
{
	static const char *const makers[] = {"other", "zklock", "curator", "kazoo"};
	ZklScanInfo info;
	size_t		size;
	FILE	   *out;

	free(reported_text);
	out = open_memstream(&reported_text, &size);
	zkl_scan_info(scan, &info);
	for (int i = 0; i < info.n_entries; i++)
	{
		const ZklEntry *e = &info.entries[i];

		fprintf(out, "%s %s %c", e->kind == ZKL_KIND_LOCK ? "lock" : "semaphore",
				e->name, e->mode == X ? 'X' : e->mode == S ? 'S' : 'P');
		if (e->position == 0)
			fprintf(out, "+");
		else
			fprintf(out, "%d", e->position);
		fprintf(out, " %s %.*s\n", makers[e->maker], e->data_len, e->data ? e->data : "");
	}
	fclose(out);
	return reported_text;
}

static const char *
reported_now(ZklScan *scan)
{
	fake_run_all();
	if (zkl_scan_status(scan) != ZKL_OK)
		return zkl_status_text(zkl_scan_status(scan));
	reported(scan);
	zkl_scan_end(scan);
	return reported_text;
}

static void
begin(void)
{
	scene_begin(3);
	make_locks();
	make_semaphores();
	fake_run_all();
	fake_count(A->client);
}


static void
test_everything(void)
{
	ZklScan    *scan;
	ZklScanInfo info;

	scene_begin(1);
	fake_count(A->client);
	is_str(reported_now(zkl_scan(A->session, ZKL_SCAN, NULL)), "", "a scan of an empty ensemble returns nothing");
	is_str(fake_trace(A->client), "sll", "this scan costs three requests");
	scene_end(NULL);

	begin();
	is_str(reported_now(zkl_scan(A->session, ZKL_SCAN, NULL)), everything, "a scan returns all queues in order");
	is_str(reported_now(zkl_scan(B->session, ZKL_SCAN, NULL)), everything, "a scan of another session returns the same");
	is_str(reported_now(zkl_scan(A->session, ZKL_SCAN, "shared")),
		   "lock shared S+ zklock party 0\nlock shared S+ zklock party 1\n"
		   "lock shared X1 zklock party 2\n", "a scan of one lock returns this lock's queue");
	is_str(reported_now(zkl_scan(A->session, ZKL_SCAN, "free")), "", "a scan of a free lock returns nothing");
	is_str(reported_now(zkl_scan(A->session, ZKL_SCAN, "none")), "", "a scan of a lock that never existed returns nothing");
	is_str(reported_now(zkl_scan(A->session, ZKL_SCAN, "unsized")),
		   "semaphore unsized P+ curator one\nsemaphore unsized P1 curator two\n",
		   "a scan of a semaphore returns its permits and waiters");

	scan = zkl_scan(A->session, ZKL_SCAN, "upgraded");
	fake_run_all();
	zkl_scan_info(scan, &info);
	ok(info.n_entries == 2 && info.entries[0].token == token_of(A, "upgraded") &&
	   info.entries[1].token == token_of(A, "upgraded"), "an upgraded lock has the token of its first grant");
	is_int(info.entries[0].session_id, fake_session_id(A->client), "an entry has the id of its session");
	is_int(info.entries[0].ctime_ms, info.entries[0].token * 1000, "an entry has the creation time of its node");
	ok(fake_tree_find(info.entries[1].path) != NULL, "an entry has the path of its node");
	zkl_scan_end(scan);
	scene_end("exclusion, scans");
}

/* Znodes of other programs below a semaphore. */
static void
test_odd_semaphores(void)
{
	scene_begin(1);
	forget(lock_now(A, "x", X));
	make(SEMAPHORES, "", 0);
	make(SEMAPHORES "/s", "", 0);
	make(SEMAPHORES "/s/leases", "", 0);
	make(SEMAPHORES "/s/leases/anything", "", 0);
	make(SEMAPHORES "/s/" HEX "01", "pool", F);
	make(SEMAPHORES "/s/file", "junk", 0);
	is_str(reported_now(zkl_scan(A->session, ZKL_SCAN, NULL)),
		   "lock x X+ zklock party 0\n"
		   "semaphore s P+ other \n",
		   "every child of the permits parent is a permit, and no other znode is");
	make(SEMAPHORES "/t", "1", 0);
	make(SEMAPHORES "/t/leases", "", 0);
	make(SEMAPHORES "/t/leases/b", "early", F);
	make(SEMAPHORES "/t/leases/a", "late", F);
	is_str(reported_now(zkl_scan(A->session, ZKL_SCAN, "t")),
		   "semaphore t P+ other early\nsemaphore t P1 other late\n",
		   "the earlier permit is the holder, whatever the names are");
	scene_end(NULL);
}

/* A capacity that is not a number is ignored. */
static void
test_odd_sizes(void)
{
	static const char *const sizes[] = {"/;", "1x", "x1", ":", "99999999", "0000000001"};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
	{
		scene_begin(1);
		make("/zklock", "", 0);
		make(SEMAPHORES, "", 0);
		make(SEMAPHORES "/s", sizes[i], 0);
		make(SEMAPHORES "/s/locks", "", 0);
		make(SEMAPHORES "/s/leases", "", 0);
		make(SEMAPHORES "/s/leases/" UUID "01-lease-0000000000", "one", F);
		make(SEMAPHORES "/s/leases/" UUID "02-lease-0000000001", "two", G);
		is_str(reported_now(zkl_scan(A->session, ZKL_SCAN, NULL)),
			   "semaphore s P+ curator one\nsemaphore s P+ curator two\n",
			   "all permits of a semaphore with the capacity \"%s\" are in use", sizes[i]);
		scene_end(NULL);
	}
}

/* Of two scans, the newer one ends first. */
static void
test_two_at_once(void)
{
	ZklScan    *older;
	ZklScan    *newer;

	begin();
	older = zkl_scan(A->session, ZKL_SCAN, NULL);
	newer = zkl_scan(A->session, ZKL_SCAN, NULL);
	fake_run_all();
	zkl_scan_end(newer);
	zkl_scan_end(older);
	ok(!has_scans(), "no scan is left of two");
	is_str(reported_now(zkl_scan(A->session, ZKL_SCAN, NULL)), everything, "another scan can start");
	scene_end(NULL);
}

static void
test_size_limits(void)
{
	char		path[512];
	static char data[4098];
	ZklScan    *scan;
	ZklScanInfo info;

	scene_begin(1);
	forget(lock_now(A, "x", X));
	fake_tree_set(node_of(A, "x"), "");
	memset(data, 'd', 4097);
	for (int i = 0; i < 2; i++)
	{
		make(path_of(i == 0 ? "big" : "fits"), "", 0);
		snprintf(path, sizeof(path), "%s/" HEX "01__lock__0000000000", path_of(i == 0 ? "big" : "fits"));
		make(path, &data[i], F);
	}
	fake_count(A->client);
	scan = zkl_scan(A->session, ZKL_SCAN, NULL);
	fake_run_all();
	zkl_scan_info(scan, &info);
	ok(info.n_entries == 3 && info.entries[1].data_len == 4096, "data of 4096 bytes are returned");
	ok(info.n_entries == 3 && info.entries[0].data_len == 0 && info.entries[0].token > 0 &&
	   info.entries[2].data_len == 0, "... longer data are not, like those of an empty node");
	ok(strchr(fake_trace(A->client), 'g') == strrchr(fake_trace(A->client), 'g'),
	   "... and are not requested: %s", fake_trace(A->client));
	zkl_scan_end(scan);
	scene_end(NULL);
}


/*
 * Many locks
 */

#define N 150

static void
begin_many(void)
{
	char		path[512];

	scene_begin(1);
	forget(lock_now(A, "x", X));
	for (int i = 0; i < N; i++)
	{
		char		name[32];

		snprintf(name, sizeof(name), "n%d", i);
		make(path_of(name), "", 0);
		snprintf(path, sizeof(path), "%s/" HEX "01__lock__0000000000", path_of(name));
		make(path, "", F);
	}
	fake_count(A->client);
}

static void
test_window(void)
{
	ZklScan    *scan;
	ZklScanInfo info;
	int			rounds = 0;
	int			most = 0;

	begin_many();
	scan = zkl_scan(A->session, ZKL_SCAN, NULL);
	for (int seen = 0; zkl_scan_status(scan) == ZKL_PENDING; rounds++)
	{
		int			sent = fake_counted(A->client);

		if (sent - seen > most)
			most = sent - seen;
		/* The server executes everything sent, then all answers are delivered. */
		for (; seen < sent; seen++)
			fake_apply(A->client);
		while (fake_deliver(A->client))
			;
	}
	zkl_scan_info(scan, &info);
	is_int(info.n_entries, N + 1, "all of many locks are returned");
	ok(most <= WINDOW + 1, "at most %d requests are in flight (%d)", WINDOW, most);
	ok(rounds <= 2 * (N / WINDOW + 2) + 1, "at least as many requests are in flight as necessary (%d rounds)", rounds);
	zkl_scan_end(scan);
	scene_end(NULL);
}

/* One of the requests in flight is not executed, and others add queues and nodes to read. */
static void
test_window_throttled(void)
{
	bool		done = false;

	for (int at = 1; !done; at++)
	{
		ZklScan    *scan;
		ZklScanInfo info;

		begin_many();
		fake_fault(A->client, at, FAULT_THROTTLE);
		scan = zkl_scan(A->session, ZKL_SCAN, NULL);
		fake_run_all();
		done = !fake_fault_happened(A->client);
		fake_advance(5000);
		zkl_scan_info(scan, &info);
		ok(zkl_scan_status(scan) == ZKL_OK && info.n_entries == N + 1,
		   "all of many locks are returned if request %d is throttled", at);
		zkl_scan_end(scan);
		scene_end(NULL);
	}
}


/*
 * Faults
 */

typedef ZklScan *(*Start) (void);

static ZklScan *
start_all(void)
{
	return zkl_scan(A->session, ZKL_SCAN, NULL);
}

static ZklScan *
start_revoke(void)
{
	return zkl_scan(A->session, ZKL_REVOKE, "shared");
}

static int
count_revoked(void)
{
	int			n = 0;

	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		n += node->data_len == 10 && memcmp(node->data, "__REVOKE__", 10) == 0;
	return n;
}

/* Is this result of a scan possible after the fault? */
static bool
ends_well(ZklScan *scan, FakeFault fault, int at, const char *expected, int n_requested)
{
	ZklStatus	status = zkl_scan_status(scan);
	ZklScanInfo info;

	if (fault == FAULT_AUTH)
		return status == ZKL_AUTH_FAILED;
	if (fake_is_expired(A->client))
		return status == ZKL_SESSION_LOST || status == ZKL_OK;
	if ((fault == FAULT_OTHER || fault == FAULT_APPLY_OTHER) && at > 1)
		return status == ZKL_SERVER_ERROR;
	if (status != ZKL_OK)
		return false;
	zkl_scan_info(scan, &info);
	if (fault == FAULT_NO_AUTH && at > 1)	/* not the sync, which is repeated */
		return info.n_denied <= 1 && info.n_denied + info.n_requested >= (n_requested > 0);
	return info.n_denied == 0 && info.n_requested == n_requested &&
		strcmp(reported(scan), expected) == 0;
}

static int
run_scan(Start start, FakeFault fault, int at, int steps, const char *expected, int n_requested)
{
	ZklScan    *scan;
	int			bad;
	int			n;

	begin();
	fake_fault(A->client, at, fault);
	scan = start();
	for (int i = 0; i != steps && fake_step(A->client); i++)
		;
	if (steps >= 0)
	{
		/* The scan is ended at some step; the session continues. */
		zkl_scan_end(scan);
		fake_run_all();
		heal();
		scan = zkl_scan(A->session, ZKL_SCAN, "held");
		heal();
		bad = !fake_is_expired(A->client) && fault != FAULT_AUTH &&
			strcmp(reported_now(scan),
				   "lock held X+ zklock party 0\n") != 0;
	}
	else
	{
		heal();
		bad = !ends_well(scan, fault, at, expected, n_requested);
		if (bad)
			diag("%s at %d of %s: %s\n%s", fake_fault_name(fault), at,
				 fake_trace(A->client), zkl_status_text(zkl_scan_status(scan)),
				 reported(scan));
		zkl_scan_end(scan);
	}
	bad += has_scans() && !fake_is_expired(A->client);
	n = fake_counted(A->client);
	scene_end(NULL);
	return steps < 0 && fault == FAULT_NONE ? n : bad;
}

static void
test_faults(Start start, const char *name, const char *expected, int n_requested)
{
	int			n = run_scan(start, FAULT_NONE, 0, -1, expected, n_requested);
	int			bad = 0;

	for (int at = 1; at <= n; at++)
		for (FakeFault fault = FAULT_NONE + 1; fault < N_FAULTS; fault++)
			bad += run_scan(start, fault, at, -1, expected, n_requested);
	is_int(bad, 0, "%s: any fault at any of %d requests is survived", name, n);
	bad = 0;
	for (int steps = 0; steps < 2 * n; steps += 3)
		for (FakeFault fault = FAULT_NONE; fault < N_FAULTS; fault++)
			bad += run_scan(start, fault, 1 + steps / 2, steps, expected, n_requested);
	is_int(bad, 0, "%s: a scan that is given up at any moment leaves nothing", name);
}

/* A scan sees all earlier writes: it uses no list before a sync has succeeded. */
static void
test_sync(void)
{
	static const FakeFault failures[] = {FAULT_THROTTLE, FAULT_OTHER, FAULT_NO_AUTH};

	for (int i = 0; i < 3; i++)
	{
		ZklScan    *scan;

		begin();
		fake_fault(A->client, 1, failures[i]);
		scan = zkl_scan(A->session, ZKL_SCAN, NULL);
		fake_run_all();
		is_str(fake_trace(A->client), "sl", "a sync precedes the first list, and no list follows if the sync fails (%s)",
			   fake_fault_name(failures[i]));
		fake_advance(5000);
		is_str(reported_now(scan), everything, "the scan succeeds after a second sync");
		ok(strncmp(fake_trace(A->client), "slsll", 5) == 0, "the second sync is followed by the lists");
		scene_end(NULL);
	}
}

/* Nodes that are deleted during the scan do not hide other nodes. */
static void
test_vanishing(void)
{
	int			bad = 0;
	bool		done = false;

	for (int steps = 0; !done; steps++)
	{
		ZklScan    *scan;
		const char *text;
		char		path[256];

		begin();
		strcpy(path, node_of(B, "shared"));
		scan = zkl_scan(A->session, ZKL_SCAN, NULL);
		for (int i = 0; i < steps && !done; i++)
			done = !fake_step(A->client);
		fake_tree_delete(path);
		fake_tree_end_session(F);
		text = reported_now(scan);
		bad += strstr(text, "lock held X+ zklock party 0\n") == NULL ||
			strstr(text, "lock shared S+ zklock party 0\n") == NULL ||
			strstr(text, "semaphore cur P+ curator two\n") == NULL;
		scene_end(NULL);
	}
	is_int(bad, 0, "other nodes are returned when a node is deleted during the scan");
}

static void
test_offline(void)
{
	ZklScan    *scan;

	begin();
	fake_disconnect(A->client);
	fake_run_all();
	scan = zkl_scan(A->session, ZKL_SCAN, NULL);
	fake_run_all();
	is_int(zkl_scan_status(scan), ZKL_PENDING, "a scan waits for the connection");
	fake_connect(A->client);
	is_str(reported_now(scan), everything, "the scan continues after the reconnect");

	scan = zkl_scan(A->session, ZKL_SCAN, NULL);
	fake_step(A->client);
	fake_expire(A->client);
	fake_connect(A->client);
	fake_run_all();
	is_int(zkl_scan_status(scan), ZKL_SESSION_LOST, "the scan ends with its session");
	scene_end(NULL);

	/* Closing the session ends its scans. */
	begin();
	zkl_scan(A->session, ZKL_SCAN, NULL);
	zkl_scan(A->session, ZKL_SCAN, NULL);
	fake_step(A->client);
	scene_end(NULL);
	ok(true, "a session may be closed during a scan");
}

static void
test_denied(void)
{
	ZklScan    *scan;
	ZklScanInfo info;
	char		path[256];

	begin();
	strcpy(path, node_of(A, "held"));
	fake_quirks.deny_read = path;
	scan = zkl_scan(A->session, ZKL_SCAN, "held");
	fake_run_all();
	zkl_scan_info(scan, &info);
	ok(zkl_scan_status(scan) == ZKL_OK && info.n_denied == 1 && info.n_entries == 1 &&
	   !info.entries[0].is_readable && info.entries[0].mode == X &&
	   info.entries[0].position == 0, "a node whose data may not be read is returned with the information in its name");
	zkl_scan_end(scan);
	fake_quirks.deny_read = SCENE_LOCKS "/held";
	scan = zkl_scan(A->session, ZKL_SCAN, NULL);
	fake_run_all();
	zkl_scan_info(scan, &info);
	is_int(info.n_denied, 1, "a lock that may not be listed is counted");
	ok(strstr(reported(scan), "lock held") == NULL && strstr(reported(scan), "lock shared"),
	   "the other locks are returned");
	zkl_scan_end(scan);
	fake_quirks.deny_read = SEMAPHORES "/cur";
	scan = zkl_scan(A->session, ZKL_SCAN, NULL);
	fake_run_all();
	zkl_scan_info(scan, &info);
	is_int(info.n_denied, 1, "a semaphore that may not be listed is counted once");
	zkl_scan_end(scan);
	fake_quirks.deny_read = NULL;
	scene_end(NULL);
}


/*
 * Revocation
 */

static int
revoked(const char *name, int *denied)
{
	ZklScan    *scan = zkl_scan(A->session, ZKL_REVOKE, name);
	ZklScanInfo info;

	fake_run_all();
	zkl_scan_info(scan, &info);
	*denied = info.n_denied;
	if (zkl_scan_status(scan) != ZKL_OK)
		info.n_requested = -1;
	zkl_scan_end(scan);
	return info.n_requested;
}

static bool
has_request(const char *path)
{
	FakeNode   *node = fake_tree_find(path);

	return node && node->data_len == 10 && memcmp(node->data, "__REVOKE__", 10) == 0;
}

static void
test_revoke(void)
{
	int			denied;

	begin();
	is_int(revoked("held", &denied), 1, "the holder's release is requested");
	ok(has_request(node_of(A, "held")), "the request is written into the data of the holder's node");
	is_int(count_revoked(), 1, "no other node gets a request");
	is_int(revoked("held", &denied), 1, "a release can be requested again");
	is_int(revoked("shared", &denied), 2, "the release of all sharers is requested");
	ok(has_request(node_of(B, "shared")) && !has_request(node_of(C, "shared")),
	   "a waiter gets no request");
	is_int(revoked("upgraded", &denied), 1, "an upgraded holder counts once");
	is_int(count_revoked(), 4, "an upgraded holder gets the request in one node");
	is_int(revoked("cur", &denied), 0, "a semaphore is no lock, and its permits get no request");
	is_int(count_revoked(), 4, "a semaphore's nodes keep their data");
	is_int(revoked("foreign", &denied), 1, "the release of another program's lock is requested");
	ok(has_request(SCENE_LOCKS "/foreign/" UUID "02-lock-0000000003"), "another program's holder gets the request");
	is_int(revoked("free", &denied), 0, "a free lock has no holder to request");
	is_int(revoked("none", &denied), 0, "a lock that never existed has no holder to request");
	ok(!zkl_lock_is_lost(hold_of(A, "held")->lock), "a holder keeps its lock after a request");
	lock_now(A, "shared", X);
	ok(revoked("shared", &denied) == 2 && has_request(node_of(B, "shared")),
	   "a sharer gets the request while it waits for its upgrade");
	fake_quirks.deny = SCENE_LOCKS "/held";
	ok(revoked("held", &denied) == 0 && denied == 1, "a node that may not be written is counted");
	fake_quirks.deny = NULL;
	scene_end("exclusion, revocations");
}

/* Spares sessions of superusers, and does not write to nodes already revoked. */
static void
test_revoke_ordinary(void)
{
	static const struct
	{
		const char *data;
		int			n_requested;
		int			n_spared;
	}			cases[] = {
		{ZKL_SUPERUSER_DATA "\"pid\":1}", 0, 1},
		{ZKL_SUPERUSER_DATA, 0, 1},
		{"{\"client\":\"zklock\",\"superuser\":false,\"pid\":1}", 1, 0},
		{"{", 1, 0},
		{"", 1, 0},
		{ZKL_REVOKE_MESSAGE, 1, 0},
		{ZKL_REVOKE_MESSAGE "!", 1, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		ZklScan    *scan;
		ZklScanInfo info;

		begin();
		fake_tree_set(node_of(A, "held"), cases[i].data);
		scan = zkl_scan(B->session, ZKL_REVOKE_ORDINARY, "held");
		fake_run_all();
		zkl_scan_info(scan, &info);
		ok(info.n_requested == cases[i].n_requested && info.n_spared == cases[i].n_spared,
		   "a holder with the data \"%s\" gets %s", cases[i].data, cases[i].n_requested ? "a request" : "no request");
		is_int(has_request(node_of(A, "held")), cases[i].n_requested, "the node's data agree");
		zkl_scan_end(scan);
		scene_end(NULL);
	}
}

/* The holder restores its data, or leaves, between the read and the write. */
static void
test_revoke_races(void)
{
	ZklScan    *scan;
	ZklScanInfo info;
	char		path[256];

	for (int leaves = 0; leaves < 2; leaves++)
	{
		begin();
		strcpy(path, node_of(A, "held"));
		scan = zkl_scan(B->session, ZKL_REVOKE, "held");
		while (count_revoked() == 0 && strchr(fake_trace(B->client), 'u') == NULL)
			fake_step(B->client);
		if (leaves)
			fake_tree_delete(path);
		else
			fake_tree_set(path, "changed");
		fake_run_all();
		zkl_scan_info(scan, &info);
		is_int(info.n_requested, !leaves, "a holder that %s is %s",
			   leaves ? "has left" : "changes its data", leaves ? "not counted" : "counted");
		is_int(has_request(path), !leaves, "the node's data agree");
		zkl_scan_end(scan);
		scene_end(NULL);
	}

	/* The answer to the write is lost, and the holder has restored its data meanwhile. */
	begin();
	strcpy(path, node_of(A, "held"));
	scan = zkl_scan(B->session, ZKL_REVOKE, "held");
	while (strchr(fake_trace(B->client), 'u') == NULL)
		fake_step(B->client);
	fake_apply(B->client);
	fake_disconnect(B->client);
	fake_tree_set(path, "restored");
	heal();
	zkl_scan_info(scan, &info);
	ok(zkl_scan_status(scan) == ZKL_OK && info.n_requested == 1, "the result is right although the answer to the write is lost");
	ok(!has_request(path), "a holder that has restored its data gets no second request");
	zkl_scan_end(scan);
	scene_end(NULL);

	/* ... or has released the lock. */
	begin();
	strcpy(path, node_of(A, "held"));
	scan = zkl_scan(B->session, ZKL_REVOKE, "held");
	while (strchr(fake_trace(B->client), 'u') == NULL)
		fake_step(B->client);
	fake_apply(B->client);
	fake_disconnect(B->client);
	fake_tree_delete(path);
	heal();
	zkl_scan_info(scan, &info);
	ok(zkl_scan_status(scan) == ZKL_OK && info.n_requested == 1, "a holder that has released the lock meanwhile is counted");
	zkl_scan_end(scan);
	scene_end(NULL);
}


/*
 * Threads
 */

static void
await(ZklSession *session, ZklScan *scan)
{
	while (zkl_scan_status(scan) == ZKL_PENDING)
	{
		struct pollfd fd = {zkl_session_fd(session), POLLIN, 0};

		if (poll(&fd, 1, 10000) == 0)
			abort();			/* the scan must wake its owner at its end */
		zkl_session_receive(session);
	}
}

static void
test_threads(void)
{
	ZklSessionConfig config = scene_config;
	ZklSession *session;
	ZklRequest *request;
	ZklLockItem item = {"a", X, NULL};
	ZklScanInfo info;
	int			bad = 0;

	fake_reset();
	fake_go_threaded(20);
	config.session_timeout_ms = 30000;
	session = zkl_session_open(&config);
	request = zkl_lock_request(session, &item, 1, false, "me", 2);
	while (zkl_request_status(request) == ZKL_PENDING)
		poll(NULL, 0, 1);
	for (int i = 0; i < 200; i++)
	{
		ZklScan    *scan = i % 3 ? zkl_scan(session, ZKL_SCAN, NULL) : zkl_scan(session, ZKL_REVOKE, "a");

		if (i % 7)
		{
			await(session, scan);
			zkl_scan_info(scan, &info);
			bad += zkl_scan_status(scan) != ZKL_OK || info.n_entries != 1;
		}
		zkl_scan_end(scan);
	}
	is_int(bad, 0, "scans finish without their owner, on breaking connections");
	zkl_request_end(request);
	zkl_session_close(session, 10000);
	fake_reset();
}

int
main(void)
{
	test_everything();
	test_odd_semaphores();
	test_odd_sizes();
	test_two_at_once();
	test_size_limits();
	test_window();
	test_window_throttled();
	test_faults(start_all, "survey", everything, 0);
	test_faults(start_revoke, "revocation",
				"lock shared S+ zklock party 0\nlock shared S+ zklock party 1\n"
				"lock shared X1 zklock party 2\n", 2);
	test_sync();
	test_vanishing();
	test_offline();
	test_denied();
	test_revoke();
	test_revoke_ordinary();
	test_revoke_races();
	test_threads();
	free(reported_text);
	return done();
}
