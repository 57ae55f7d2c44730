/*-------------------------------------------------------------------------
 *
 * pairs.c
 *		Locks and unlocks through the recipe layer, and reports the longest pause.
 *
 *   pairs CONNECT_STRING TIMEOUT_MS PAIRS
 *
 * Needs no PostgreSQL.  Each unlock is pipelined with the next lock, as in a
 * backend that does both in one statement.  The last line of output is
 *
 *   pairs N median_us M longest_ms L slow S
 *
 * where S pairs took longer than a fifth of the session timeout.  The end of the
 * session is an error.
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "recipe/recipe.h"

static int64_t
now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static int
compare(const void *a, const void *b)
{
	int64_t		x = *(const int64_t *) a;
	int64_t		y = *(const int64_t *) b;

	return (x > y) - (x < y);
}

static void
fail(const char *what)
{
	fprintf(stderr, "pairs: %s\n", what);
	exit(1);
}

static void
wait_changed(ZklSession *session)
{
	struct pollfd fd = {.fd = zkl_session_fd(session),.events = POLLIN};

	zkl_session_waits(session, true);
	poll(&fd, 1, -1);
	zkl_session_receive(session);
	zkl_session_waits(session, false);
}

static void
lock_and_unlock(ZklSession *session)
{
	ZklLockItem item = {.name = "pairs",.mode = ZKL_MODE_EXCLUSIVE};
	ZklRequest *request = zkl_lock_request(session, &item, 1, false, "pairs", 5);
	ZklStatus	status;

	if (request == NULL)
		fail("out of memory");
	while ((status = zkl_request_status(request)) == ZKL_PENDING)
		wait_changed(session);
	if (status != ZKL_OK)
		fail("a request failed");
	zkl_lock_reduce(zkl_request_lock(request, 0), ZKL_MODE_NONE);
	zkl_request_end(request);
}

int
main(int argc, char **argv)
{
	int			timeout_ms = argc == 4 ? atoi(argv[2]) : 0;
	int			n = argc == 4 ? atoi(argv[3]) : 0;
	ZklSessionConfig config = {
		.connect_string = argv[1],
		.root = "/pairs",
		.session_timeout_ms = timeout_ms,
		.node_names = ZKL_NODE_NAMES_CURATOR,
		.max_nodes = 100,
	};
	ZklSession *session;
	int64_t    *took;
	int			slow = 0;

	if (timeout_ms <= 0 || n <= 0)
		fail("usage: pairs CONNECT_STRING TIMEOUT_MS PAIRS");
	session = zkl_session_open(&config);
	took = calloc((size_t) n, sizeof(int64_t));
	if (session == NULL || took == NULL)
		fail("no session");
	while (zkl_session_state(session) == ZKL_SESSION_CONNECTING)
		wait_changed(session);
	for (int i = 0; i < n; i++)
	{
		int64_t		began = now_us();

		lock_and_unlock(session);
		took[i] = now_us() - began;
		slow += took[i] > (int64_t) timeout_ms * 200;
	}
	zkl_session_close(session, 2000);
	qsort(took, (size_t) n, sizeof(int64_t), compare);
	printf("pairs %d median_us %lld longest_ms %lld slow %d\n", n,
		   (long long) took[n / 2], (long long) took[n - 1] / 1000, slow);
	free(took);
	return 0;
}
