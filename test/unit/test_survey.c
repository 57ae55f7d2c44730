/*-------------------------------------------------------------------------
 *
 * test_survey.c
 *		Promises about surveys: everything is told that stands in the queues,
 *		whatever goes wrong while it is read, and whoever comes and goes.
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scene.h"
#include "survey.h"

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


/*
 * What is there
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
	make(SEMAPHORES "/kaz", "2", 0);
	make(SEMAPHORES "/kaz/" HEX "31", "one", F);
	make(SEMAPHORES "/kaz/" HEX "32", "two", G);
	make(SEMAPHORES "/kaz-__lock__", "", 0);
	make(SEMAPHORES "/kaz-__lock__/" HEX "33__lock__0000000009", "three", F);
	make(SEMAPHORES "/kaz-__lock__/" HEX "34__lock__0000000010", "four", G);
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
"semaphore kaz P+ kazoo one\n"
"semaphore kaz P+ kazoo two\n"
"semaphore kaz P1 kazoo three\n"
"semaphore kaz P2 kazoo four\n"
"semaphore unsized P+ curator one\n"
"semaphore unsized P1 curator two\n";


/*
 * What is told
 */

static char *told_text;

/* One line for each entry; X, S or P and a plus, or the place in the queue. */
static const char *
told(ZklSurvey *survey)
{
	static const char *const makers[] = {"other", "zklock", "curator", "kazoo"};
	ZklSurveyInfo info;
	size_t		size;
	FILE	   *out;

	free(told_text);
	out = open_memstream(&told_text, &size);
	zkl_survey_info(survey, &info);
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
	return told_text;
}

static const char *
told_now(ZklSurvey *survey)
{
	fake_run_all();
	if (zkl_survey_status(survey) != ZKL_OK)
		return zkl_status_text(zkl_survey_status(survey));
	told(survey);
	zkl_survey_end(survey);
	return told_text;
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
	ZklSurvey  *survey;
	ZklSurveyInfo info;

	scene_begin(1);
	fake_count(A->client);
	is_str(told_now(zkl_survey_all(A->session)), "", "where nothing was ever locked there is nothing");
	is_str(fake_trace(A->client), "sll", "... which costs three requests");
	scene_end(NULL);

	begin();
	is_str(told_now(zkl_survey_all(A->session)), everything, "everything is told, in order");
	is_str(told_now(zkl_survey_all(B->session)), everything, "... to everybody");
	is_str(told_now(zkl_survey_one(A->session, ZKL_KIND_LOCK, "shared")),
		   "lock shared S+ zklock party 0\nlock shared S+ zklock party 1\n"
		   "lock shared X1 zklock party 2\n", "one lock");
	is_str(told_now(zkl_survey_one(A->session, ZKL_KIND_LOCK, "free")), "", "one that is free");
	is_str(told_now(zkl_survey_one(A->session, ZKL_KIND_LOCK, "none")), "", "one that never was");
	is_str(told_now(zkl_survey_one(A->session, ZKL_KIND_SEMAPHORE, "kaz")),
		   "semaphore kaz P+ kazoo one\nsemaphore kaz P+ kazoo two\n"
		   "semaphore kaz P1 kazoo three\nsemaphore kaz P2 kazoo four\n",
		   "one semaphore of kazoo's");
	is_str(told_now(zkl_survey_one(A->session, ZKL_KIND_SEMAPHORE, "unsized")),
		   "semaphore unsized P+ curator one\nsemaphore unsized P1 curator two\n",
		   "one of Curator's");

	survey = zkl_survey_one(A->session, ZKL_KIND_LOCK, "upgraded");
	fake_run_all();
	zkl_survey_info(survey, &info);
	ok(info.n_entries == 2 && info.entries[0].token == token_of(A, "upgraded") &&
	   info.entries[1].token == token_of(A, "upgraded"), "an upgrade has the token of its start");
	is_int(info.entries[0].session_id, fake_session_id(A->client), "... and is this session's");
	is_int(info.entries[0].ctime_ms, info.entries[0].token * 1000, "... since it was made");
	ok(fake_tree_find(info.entries[1].path) != NULL, "... at this path");
	zkl_survey_end(survey);
	scene_end("exclusion, surveys");
}

/* Two kinds of semaphore may have one name, and a name may end as kazoo's waiters do. */
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
	make(SEMAPHORES "/s-__lock__", "1", 0);
	make(SEMAPHORES "/s-__lock__/leases", "", 0);
	make(SEMAPHORES "/s-__lock__/leases/" UUID "02-lease-0000000000", "lease", F);
	make(SEMAPHORES "/s-__lock__/junk", "", 0);
	make(SEMAPHORES "/s-__lock__/" HEX "03__lock__0000000000", "waiter", G);
	make(SEMAPHORES "/-__lock__", "", 0);
	is_str(told_now(zkl_survey_all(A->session)),
		   "lock x X+ zklock party 0\n"
		   "semaphore s P+ other \n"
		   "semaphore s P+ kazoo pool\n"
		   "semaphore s P+ other junk\n"
		   "semaphore s P1 kazoo waiter\n"
		   "semaphore s-__lock__ P+ curator lease\n",
		   "every child of a semaphore is a permit");
	make(SEMAPHORES "/t", "1", 0);
	make(SEMAPHORES "/t/leases", "", 0);
	make(SEMAPHORES "/t/leases/b", "early", F);
	make(SEMAPHORES "/t/leases/a", "late", F);
	is_str(told_now(zkl_survey_one(A->session, ZKL_KIND_SEMAPHORE, "t")),
		   "semaphore t P+ other early\nsemaphore t P1 other late\n",
		   "who came first has the permit, whatever the names");
	scene_end(NULL);
}

static void
test_size_limits(void)
{
	char		path[512];
	static char data[20001];
	ZklSurvey  *survey;
	ZklSurveyInfo info;

	scene_begin(1);
	forget(lock_now(A, "x", X));
	fake_tree_set(node_of(A, "x"), "");
	memset(data, 'd', 20000);
	make(path_of("big"), "", 0);
	snprintf(path, sizeof(path), "%s/" HEX "01__lock__0000000000", path_of("big"));
	make(path, data, F);
	survey = zkl_survey_all(A->session);
	fake_run_all();
	zkl_survey_info(survey, &info);
	ok(info.n_entries == 2 && info.entries[0].data_len == 4096 &&
	   info.entries[1].data_len == 0, "long data are cut, and no data are none");
	zkl_survey_end(survey);
	scene_end(NULL);
}


/*
 * Many
 */

static void
test_window(void)
{
	enum
	{
	N = 150};
	ZklSurvey  *survey;
	ZklSurveyInfo info;
	char		path[512];
	int			rounds = 0;
	int			most = 0;

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
	survey = zkl_survey_all(A->session);
	for (int seen = 0; zkl_survey_status(survey) == ZKL_PENDING; rounds++)
	{
		int			sent = fake_counted(A->client);

		if (sent - seen > most)
			most = sent - seen;
		/* Everything sent reaches the server, then all answers come. */
		for (; seen < sent; seen++)
			fake_apply(A->client);
		while (fake_deliver(A->client))
			;
	}
	zkl_survey_info(survey, &info);
	is_int(info.n_entries, N + 1, "all of many are told");
	ok(most <= WINDOW + 1, "at most %d requests are in flight (%d)", WINDOW, most);
	ok(rounds <= 2 * (N / WINDOW + 2) + 1, "... and no fewer than needed (%d rounds)", rounds);
	zkl_survey_end(survey);
	scene_end(NULL);
}


/*
 * Faults
 */

typedef ZklSurvey *(*Start) (void);

static ZklSurvey *
start_all(void)
{
	return zkl_survey_all(A->session);
}

static ZklSurvey *
start_revoke(void)
{
	return zkl_revoke(A->session, "shared");
}

static int
count_revoked(void)
{
	int			n = 0;

	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		n += node->data_len == 10 && memcmp(node->data, "__REVOKE__", 10) == 0;
	return n;
}

/* Is the end of a survey what this fault may make of it? */
static bool
ends_well(ZklSurvey *survey, FakeFault fault, int at, const char *expected, int n_asked)
{
	ZklStatus	status = zkl_survey_status(survey);
	ZklSurveyInfo info;

	if (fault == FAULT_AUTH)
		return status == ZKL_AUTH_FAILED;
	if (fake_is_expired(A->client))
		return status == ZKL_SESSION_LOST || status == ZKL_OK;
	if (fault == FAULT_OTHER)
		return status == ZKL_SERVER_ERROR;
	if (fault == FAULT_NO_AUTH && at == 1)
		return status == ZKL_NO_AUTH;	/* the sync */
	if (status != ZKL_OK)
		return false;
	zkl_survey_info(survey, &info);
	if (fault == FAULT_NO_AUTH)
		return info.n_denied <= 1 && info.n_denied + info.n_asked >= (n_asked > 0);
	return info.n_denied == 0 && info.n_asked == n_asked &&
		strcmp(told(survey), expected) == 0;
}

static int
play(Start start, FakeFault fault, int at, int steps, const char *expected, int n_asked)
{
	ZklSurvey  *survey;
	int			bad;
	int			n;

	begin();
	fake_fault(A->client, at, fault);
	survey = start();
	for (int i = 0; i != steps && fake_step(A->client); i++)
		;
	if (steps >= 0)
	{
		/* Given up at some moment; the session goes on. */
		zkl_survey_end(survey);
		fake_run_all();
		heal();
		bad = !fake_is_expired(A->client) && fault != FAULT_AUTH &&
			strcmp(told_now(zkl_survey_one(A->session, ZKL_KIND_LOCK, "held")),
				   "lock held X+ zklock party 0\n") != 0;
	}
	else
	{
		heal();
		bad = !ends_well(survey, fault, at, expected, n_asked);
		if (bad)
			diag("%s at %d of %s: %s\n%s", fake_fault_name(fault), at,
				 fake_trace(A->client), zkl_status_text(zkl_survey_status(survey)),
				 told(survey));
		zkl_survey_end(survey);
	}
	bad += A->session->surveys != NULL && !fake_is_expired(A->client);
	n = fake_counted(A->client);
	scene_end(NULL);
	return steps < 0 && fault == FAULT_NONE ? n : bad;
}

static void
test_faults(Start start, const char *name, const char *expected, int n_asked)
{
	int			n = play(start, FAULT_NONE, 0, -1, expected, n_asked);
	int			bad = 0;

	for (int at = 1; at <= n; at++)
		for (FakeFault fault = FAULT_NONE + 1; fault < N_FAULTS; fault++)
			bad += play(start, fault, at, -1, expected, n_asked);
	is_int(bad, 0, "%s: any fault at any of %d requests is got over", name, n);
	bad = 0;
	for (int steps = 0; steps < 2 * n; steps += 3)
		for (FakeFault fault = FAULT_NONE; fault < N_FAULTS; fault++)
			bad += play(start, fault, 1 + steps / 2, steps, expected, n_asked);
	is_int(bad, 0, "%s: who gives it up at any moment leaves nothing", name);
}

/* What was written before is seen: nothing is read before the sync is answered. */
static void
test_sync(void)
{
	ZklSurvey  *survey;

	begin();
	survey = zkl_survey_all(A->session);
	is_str(fake_trace(A->client), "s", "a sync goes first");
	told_now(survey);
	fake_count(A->client);
	fake_fault(A->client, 1, FAULT_THROTTLE);
	survey = zkl_survey_all(A->session);
	fake_run_all();
	is_str(fake_trace(A->client), "s", "... and nothing behind it when it fails");
	fake_advance(5000);
	is_str(told_now(survey), everything, "... but a second one");
	ok(strncmp(fake_trace(A->client), "ssll", 4) == 0, "... and then the rest");
	scene_end(NULL);
}

/* Whatever goes while it is read, the rest is told. */
static void
test_vanishing(void)
{
	int			bad = 0;
	bool		done = false;

	for (int steps = 0; !done; steps++)
	{
		ZklSurvey  *survey;
		const char *text;
		char		path[256];

		begin();
		strcpy(path, node_of(B, "shared"));
		survey = zkl_survey_all(A->session);
		for (int i = 0; i < steps && !done; i++)
			done = !fake_step(A->client);
		fake_tree_delete(path);
		fake_tree_end_session(F);
		text = told_now(survey);
		bad += strstr(text, "lock held X+ zklock party 0\n") == NULL ||
			strstr(text, "lock shared S+ zklock party 0\n") == NULL ||
			strstr(text, "semaphore cur P+ curator two\n") == NULL;
		scene_end(NULL);
	}
	is_int(bad, 0, "whoever leaves while it is read, the others are told");
}

static void
test_offline(void)
{
	ZklSurvey  *survey;

	begin();
	fake_disconnect(A->client);
	fake_run_all();
	survey = zkl_survey_all(A->session);
	fake_run_all();
	is_int(zkl_survey_status(survey), ZKL_PENDING, "a survey waits for the connection");
	fake_connect(A->client);
	is_str(told_now(survey), everything, "... and goes on then");

	survey = zkl_survey_all(A->session);
	fake_step(A->client);
	fake_expire(A->client);
	fake_connect(A->client);
	fake_run_all();
	is_int(zkl_survey_status(survey), ZKL_SESSION_LOST, "it ends with its session");
	scene_end(NULL);

	/* The session is closed, and takes its surveys along. */
	begin();
	zkl_survey_all(A->session);
	zkl_survey_all(A->session);
	fake_step(A->client);
	scene_end(NULL);
	ok(true, "a session is closed in the middle of a survey");
}

static void
test_denied(void)
{
	ZklSurvey  *survey;
	ZklSurveyInfo info;
	char		path[256];

	begin();
	strcpy(path, node_of(A, "held"));
	fake_quirks.deny_read = path;
	survey = zkl_survey_one(A->session, ZKL_KIND_LOCK, "held");
	fake_run_all();
	zkl_survey_info(survey, &info);
	ok(zkl_survey_status(survey) == ZKL_OK && info.n_denied == 1 && info.n_entries == 1 &&
	   !info.entries[0].is_readable && info.entries[0].mode == X &&
	   info.entries[0].position == 0, "a node that may not be read is told as far as its name does");
	zkl_survey_end(survey);
	fake_quirks.deny_read = SCENE_LOCKS "/held";
	survey = zkl_survey_all(A->session);
	fake_run_all();
	zkl_survey_info(survey, &info);
	is_int(info.n_denied, 1, "a lock that may not be listed is counted");
	ok(strstr(told(survey), "lock held") == NULL && strstr(told(survey), "lock shared"),
	   "... and the others are told");
	zkl_survey_end(survey);
	fake_quirks.deny_read = SEMAPHORES "/cur";
	survey = zkl_survey_all(A->session);
	fake_run_all();
	zkl_survey_info(survey, &info);
	is_int(info.n_denied, 1, "so is a semaphore, once");
	zkl_survey_end(survey);
	fake_quirks.deny_read = NULL;
	scene_end(NULL);
}


/*
 * Revocation
 */

static int
revoked(const char *name, int *denied)
{
	ZklSurvey  *survey = zkl_revoke(A->session, name);
	ZklSurveyInfo info;

	fake_run_all();
	zkl_survey_info(survey, &info);
	*denied = info.n_denied;
	if (zkl_survey_status(survey) != ZKL_OK)
		info.n_asked = -1;
	zkl_survey_end(survey);
	return info.n_asked;
}

static bool
says_revoke(const char *path)
{
	FakeNode   *node = fake_tree_find(path);

	return node && node->data_len == 10 && memcmp(node->data, "__REVOKE__", 10) == 0;
}

static void
test_revoke(void)
{
	int			denied;

	begin();
	is_int(revoked("held", &denied), 1, "the holder is asked");
	ok(says_revoke(node_of(A, "held")), "... by the data of its node");
	is_int(count_revoked(), 1, "... and nobody else");
	is_int(revoked("held", &denied), 1, "... once more, if one likes");
	is_int(revoked("shared", &denied), 2, "all sharers are asked");
	ok(says_revoke(node_of(B, "shared")) && !says_revoke(node_of(C, "shared")),
	   "... and not who waits");
	is_int(revoked("upgraded", &denied), 1, "who has upgraded is one holder");
	is_int(count_revoked(), 4, "... asked by one node");
	is_int(revoked("foreign", &denied), 1, "other programs are asked");
	ok(says_revoke(SCENE_LOCKS "/foreign/" UUID "02-lock-0000000003"), "... if they hold");
	is_int(revoked("free", &denied), 0, "nobody is asked for what is free");
	is_int(revoked("none", &denied), 0, "... or never was");
	ok(!zkl_lock_is_lost(hold_of(A, "held")->lock), "who is asked holds on");
	fake_quirks.deny = SCENE_LOCKS "/held";
	ok(revoked("held", &denied) == 0 && denied == 1, "a node that may not be changed is counted");
	fake_quirks.deny = NULL;
	scene_end("exclusion, revocations");
}

/* The holder puts its data back, or leaves, between the read and the write. */
static void
test_revoke_races(void)
{
	ZklSurvey  *survey;
	ZklSurveyInfo info;
	char		path[256];

	for (int leaves = 0; leaves < 2; leaves++)
	{
		begin();
		strcpy(path, node_of(A, "held"));
		survey = zkl_revoke(B->session, "held");
		while (count_revoked() == 0 && strchr(fake_trace(B->client), 'u') == NULL)
			fake_step(B->client);
		if (leaves)
			fake_tree_delete(path);
		else
			fake_tree_set(path, "changed");
		fake_run_all();
		zkl_survey_info(survey, &info);
		is_int(info.n_asked, !leaves, "a holder that %s is %s",
			   leaves ? "has left" : "changes its data", leaves ? "not counted" : "asked all the same");
		is_int(says_revoke(path), !leaves, "... as its data say");
		zkl_survey_end(survey);
		scene_end(NULL);
	}

	/* Its answer is lost, and the holder has put its data back meanwhile. */
	begin();
	strcpy(path, node_of(A, "held"));
	survey = zkl_revoke(B->session, "held");
	while (strchr(fake_trace(B->client), 'u') == NULL)
		fake_step(B->client);
	fake_apply(B->client);
	fake_disconnect(B->client);
	fake_tree_set(path, "restored");
	heal();
	zkl_survey_info(survey, &info);
	ok(zkl_survey_status(survey) == ZKL_OK && info.n_asked == 1, "a lost answer is found out");
	ok(!says_revoke(path), "... and who has noticed is not asked twice");
	zkl_survey_end(survey);
	scene_end(NULL);

	/* ... or has let go. */
	begin();
	strcpy(path, node_of(A, "held"));
	survey = zkl_revoke(B->session, "held");
	while (strchr(fake_trace(B->client), 'u') == NULL)
		fake_step(B->client);
	fake_apply(B->client);
	fake_disconnect(B->client);
	fake_tree_delete(path);
	heal();
	zkl_survey_info(survey, &info);
	ok(zkl_survey_status(survey) == ZKL_OK && info.n_asked == 1, "who has let go meanwhile was asked");
	zkl_survey_end(survey);
	scene_end(NULL);
}


/*
 * Threads
 */

static void
await(ZklSession *session, ZklSurvey *survey)
{
	while (zkl_survey_status(survey) == ZKL_PENDING)
	{
		struct pollfd fd = {zkl_session_fd(session), POLLIN, 0};

		if (poll(&fd, 1, 10000) == 0)
			abort();			/* it is told when it is done */
		zkl_session_clear_wakeup(session);
	}
}

static void
test_threads(void)
{
	ZklSessionConfig config = scene_config;
	ZklSession *session;
	ZklRequest *request;
	ZklLockWish wish = {"a", X, NULL};
	ZklSurveyInfo info;
	int			bad = 0;

	fake_reset();
	fake_go_threaded(20);
	config.session_timeout_ms = 30000;
	session = zkl_session_open(&config);
	request = zkl_lock_request(session, &wish, 1, false, "me", 2);
	while (zkl_request_status(request) == ZKL_PENDING)
		poll(NULL, 0, 1);
	for (int i = 0; i < 200; i++)
	{
		ZklSurvey  *survey = i % 3 ? zkl_survey_all(session) : zkl_revoke(session, "a");

		if (i % 7)
		{
			await(session, survey);
			zkl_survey_info(survey, &info);
			bad += zkl_survey_status(survey) != ZKL_OK || info.n_entries != 1;
		}
		zkl_survey_end(survey);
	}
	is_int(bad, 0, "surveys go on by themselves, on breaking connections");
	zkl_request_end(request);
	zkl_session_close(session, 10000);
	fake_reset();
}

int
main(void)
{
	test_everything();
	test_odd_semaphores();
	test_size_limits();
	test_window();
	test_faults(start_all, "survey", everything, 0);
	test_faults(start_revoke, "revocation",
				"lock shared S+ zklock party 0\nlock shared S+ zklock party 1\n"
				"lock shared X1 zklock party 2\n", 2);
	test_sync();
	test_vanishing();
	test_offline();
	test_denied();
	test_revoke();
	test_revoke_races();
	test_threads();
	free(told_text);
	return done();
}
