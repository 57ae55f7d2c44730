/*-------------------------------------------------------------------------
 *
 * driving.c
 *		Owners and I/O threads that drive the real client library in turns.
 *
 *	 driving CONNECT_STRING TIMEOUT_MS SECONDS
 *
 * Each owner opens sessions one after the other, waits for locks, and pauses in
 * between, for shorter and longer than its session's thread needs to take over.
 * For ThreadSanitizer, with connections that break meanwhile:
 * test/t/lease/alternate_threads.pl.  Prints the number of locks granted.
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "recipe/recipe.h"

#define OWNERS 3
#define SESSION_S 4

static const char *connect_string;
static int	timeout_ms;
static int	seconds;

static void
wait_changed(ZklSession *session)
{
	struct pollfd fd = {.fd = zkl_session_fd(session),.events = POLLIN};

	zkl_session_waits(session, true);
	poll(&fd, 1, 1000);
	zkl_session_receive(session);
	zkl_session_waits(session, false);
}

/* Returns true if the lock was granted. */
static bool
lock_once(ZklSession *session, unsigned *seed)
{
	static const char *const names[] = {"a", "b", "c"};
	ZklLockItem item = {.name = names[rand_r(seed) % 3],.mode =
	rand_r(seed) % 2 ? ZKL_MODE_EXCLUSIVE : ZKL_MODE_SHARED};
	ZklRequest *request = zkl_lock_request(session, &item, 1, false, "me", 2);
	ZklStatus	status;

	while ((status = zkl_request_status(request)) == ZKL_PENDING)
		wait_changed(session);
	if (status == ZKL_OK)
	{
		if (rand_r(seed) % 5 == 0)
			usleep((unsigned) rand_r(seed) % 80000);
		zkl_lock_reduce(zkl_request_lock(request, 0), ZKL_MODE_NONE);
	}
	zkl_request_end(request);
	if (rand_r(seed) % 20 == 0)
		usleep((unsigned) rand_r(seed) % 120000);
	return status == ZKL_OK;
}

static void *
owner_main(void *arg)
{
	unsigned	seed = (unsigned) (size_t) arg;
	time_t		end = time(NULL) + seconds;
	size_t		locks = 0;

	while (time(NULL) < end)
	{
		ZklSessionConfig config = {
			.connect_string = connect_string,
			.root = "/driving",
			.session_timeout_ms = timeout_ms,
			.node_names = ZKL_NODE_NAMES_CURATOR,
			.max_nodes = 100,
		};
		ZklSession *session = zkl_session_open(&config);
		time_t		session_end = time(NULL) + SESSION_S;

		if (session == NULL)
			abort();
		while (zkl_session_state(session) == ZKL_SESSION_CONNECTING)
			wait_changed(session);
		while (time(NULL) < session_end &&
			   zkl_session_state(session) < ZKL_SESSION_EXPIRED)
			locks += lock_once(session, &seed);
		zkl_session_close(session, 2000);
	}
	return (void *) locks;
}

int
main(int argc, char **argv)
{
	pthread_t	owners[OWNERS];
	size_t		locks = 0;

	if (argc != 4)
		return 2;
	connect_string = argv[1];
	timeout_ms = atoi(argv[2]);
	seconds = atoi(argv[3]);
	for (int i = 0; i < OWNERS; i++)
		pthread_create(&owners[i], NULL, owner_main, (void *) (size_t) (i + 1));
	for (int i = 0; i < OWNERS; i++)
	{
		void	   *result;

		pthread_join(owners[i], &result);
		locks += (size_t) result;
	}
	printf("%zu locks\n", locks);
	return 0;
}
