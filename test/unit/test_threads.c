/*-------------------------------------------------------------------------
 *
 * test_threads.c
 *		Promises with real threads: each session has an owner, a client and an I/O
 *		thread, and connections break now and then.  For ThreadSanitizer.
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fake_client.h"
#include "recipe/recipe.h"
#include "tap.h"

#define N_OWNERS 4
#define N_NAMES 3
#ifdef SHORT_RUN
#define ROUNDS 150
#else
#define ROUNDS 600
#endif

static const char *const names[N_NAMES] = {"a", "b", "c"};

/* The referee counts the holders of each name; a writer counts 1000. */
static pthread_mutex_t referee = PTHREAD_MUTEX_INITIALIZER;
static int	inside[N_NAMES];
static int	violations;
static int	lost;
static int	granted;

static void
enter(int name, int weight)
{
	pthread_mutex_lock(&referee);
	inside[name] += weight;
	if (inside[name] > 1000 || (weight == 1 && inside[name] >= 1000))
		violations++;
	granted++;
	pthread_mutex_unlock(&referee);
}

static void
leave(int name, int weight)
{
	pthread_mutex_lock(&referee);
	inside[name] -= weight;
	pthread_mutex_unlock(&referee);
}

/* Waits like the owner's wait loop, until the end or for some wake-ups only. */
static ZklStatus
wait_for(ZklSession *session, ZklRequest *request, int wakeups)
{
	ZklStatus	status;

	while ((status = zkl_request_status(request)) == ZKL_PENDING && wakeups-- > 0)
	{
		struct pollfd fd = {zkl_session_fd(session), POLLIN, 0};

		if (poll(&fd, 1, 10000) == 0)
			abort();			/* no holder takes that long */
		zkl_session_receive(session);
	}
	return status;
}

static void
one_round(ZklSession *session, unsigned *seed)
{
	int			name = rand_r(seed) / 7 % N_NAMES;
	bool		writer = rand_r(seed) / 7 % 2;
	bool		impatient = rand_r(seed) / 7 % 8 == 0;
	ZklLockItem item = {.name = names[name],.mode = writer ? ZKL_MODE_EXCLUSIVE : ZKL_MODE_SHARED};
	ZklRequest *request = zkl_lock_request(session, &item, 1,
										   rand_r(seed) / 7 % 6 == 0, "me", 2);
	ZklLock    *lock = NULL;

	if (wait_for(session, request, impatient ? 1 : 1000000) == ZKL_OK)
		lock = zkl_request_lock(request, 0);
	zkl_request_end(request);
	if (lock == NULL)
		return;
	enter(name, writer ? 1000 : 1);
	if (writer && rand_r(seed) / 7 % 3 == 0)
	{
		leave(name, 1000);
		enter(name, 1);
		writer = false;
		zkl_lock_reduce(lock, ZKL_MODE_SHARED);
	}
	if (rand_r(seed) / 7 % 5 == 0)
		zkl_session_confirm(session, false);
	pthread_mutex_lock(&referee);
	lost += zkl_lock_is_lost(lock);
	pthread_mutex_unlock(&referee);
	leave(name, writer ? 1000 : 1);
	zkl_lock_reduce(lock, ZKL_MODE_NONE);
}

static void *
owner_main(void *arg)
{
	unsigned	seed = (unsigned) (size_t) arg;
	ZklSessionConfig config = {
		.connect_string = "192.0.2.1:2181",
		.root = "/zklock",
		.session_timeout_ms = 30000,
		.max_nodes = 100,
	};
	ZklSession *session = zkl_session_open(&config);

	for (int i = 0; i < ROUNDS; i++)
	{
		one_round(session, &seed);
		(void) zkl_session_info(session);
	}
	zkl_session_close(session, 10000);
	return NULL;
}

int
main(void)
{
	pthread_t	owners[N_OWNERS];
	int			left = 0;

	fake_reset();
	fake_go_threaded(5);
	for (int i = 0; i < N_OWNERS; i++)
		pthread_create(&owners[i], NULL, owner_main, (void *) (size_t) (i + 1));
	for (int i = 0; i < N_OWNERS; i++)
		pthread_join(owners[i], NULL);
	is_int(violations, 0, "threads exclude each other");
	is_int(lost, 0, "no lock is lost by broken connections");
	ok(granted > N_OWNERS * ROUNDS / 4, "most requests are granted (%d)", granted);
	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		left += node->owner != 0;
	is_int(left, 0, "no node is left");
	fake_reset();
	return done();
}
