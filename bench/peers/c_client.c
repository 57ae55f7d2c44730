/*-------------------------------------------------------------------------
 *
 * c_client.c
 *		ZooKeeper's C client alone, to compare zklock with.
 *
 * Owns: sessions, some of which stay open, and threads that acquire and release locks
 * as fast as possible.  Reads commands from standard input, each a line of words,
 * and answers "ok" and numbers:
 *
 *	 run KIND CLIENTS WHERE LEAD SECONDS	the number of locks acquired, and the
 *										microseconds of processor time of all threads
 *	 times KIND SECONDS						the microseconds of each turn of one client with
 *										a lock of its own, one turn after the other
 *	 first NUMBER							the microseconds that each of so many new sessions,
 *										one after the other, takes until it has a lock
 *	 fresh NUMBER							the same, each in a new process, which has used the
 *										library for nothing else: only as the first command
 *	 fill PATH FROM TO						creates containers
 *
 * LEAD seconds pass before the count begins.  WHERE is "own", a lock for each
 * client, or "one" for all of them.  Kinds:
 *
 *	 sync		create, delete; each waits for its answer.  Not a lock yet
 *	 flight		create and list sent together, asynchronous delete.  A lock
 *				without other contenders
 *	 least		create, asynchronous delete: the cheapest possible lock
 *	 queue		create, list and watch the predecessor until there is none,
 *				asynchronous delete: the recipe of zklock and Curator
 *	 textbook	create, list and watch the list until the own node is the
 *				lowest, delete.  Each change wakes all waiters: the herd
 *
 * Each client has a session of its own.  bench/lib/peers.py is the only caller.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <zookeeper/zookeeper.h>

#define ROOT "/bench_c"
#define MAX_CLIENTS 2000

/* More sessions than these are closed after a run: their pings would disturb the next. */
#define KEPT 64

#define MAX_TIMES 1000000

/* On a machine that is busy with a thousand clients no session may be lost. */
#define SESSION_TIMEOUT_MS 60000

typedef struct Client
{
	zhandle_t  *zh;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool		connected;
	int			answers;		/* outstanding */
	int			events;			/* of the watch, ever */
	char		dir[64];
	char		node[128];
	bool		(*turn) (struct Client *client);
	double		from,
				until;
	long		count;
} Client;

static Client clients[MAX_CLIENTS];
static int	opened;
static const char *hosts;


static void
die(const char *what, int code)
{
	printf("error %s: %s\n", what, zerror(code));
	fflush(stdout);
	exit(1);
}

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Returns the processor time of all threads, in microseconds. */
static double
processor_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void
must(const char *what, int code)
{
	if (code != ZOK)
		die(what, code);
}


/*
 * Callbacks, which run on the client library's threads
 */

static void
session_event(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	Client	   *client = context;

	if (type != ZOO_SESSION_EVENT)
		return;
	if (state != ZOO_CONNECTED_STATE && client->connected)
		die("session", ZCONNECTIONLOSS);
	pthread_mutex_lock(&client->mutex);
	client->connected = state == ZOO_CONNECTED_STATE;
	pthread_cond_broadcast(&client->changed);
	pthread_mutex_unlock(&client->mutex);
}

static void
node_event(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	Client	   *client = context;

	pthread_mutex_lock(&client->mutex);
	client->events++;
	pthread_cond_broadcast(&client->changed);
	pthread_mutex_unlock(&client->mutex);
}

static void
answered(Client *client)
{
	pthread_mutex_lock(&client->mutex);
	client->answers--;
	pthread_cond_broadcast(&client->changed);
	pthread_mutex_unlock(&client->mutex);
}

static void
created(int rc, const char *value, const void *context)
{
	Client	   *client = (Client *) context;

	must("create", rc);
	snprintf(client->node, sizeof(client->node), "%s", value);
	answered(client);
}

static void
listed(int rc, const struct String_vector *children, const void *context)
{
	must("list", rc);
	answered((Client *) context);
}

static void
filled(int rc, const char *value, const void *context)
{
	if (rc != ZNODEEXISTS)
		must("fill", rc);
	answered((Client *) context);
}

static void
deleted(int rc, const void *context)
{
	must("delete", rc);
}


/*
 * One lock and unlock; returns true if it ended in time
 */

static void
create(Client *client)
{
	char		path[96];

	snprintf(path, sizeof(path), "%s/lock-", client->dir);
	must("create", zoo_create(client->zh, path, NULL, -1, &ZOO_OPEN_ACL_UNSAFE,
							  ZOO_EPHEMERAL | ZOO_SEQUENCE, client->node, sizeof(client->node)));
}

static bool
turn_sync(Client *client)
{
	create(client);
	must("delete", zoo_delete(client->zh, client->node, -1));
	return true;
}

static bool
acquire_and_release(Client *client, bool list)
{
	char		path[96];

	snprintf(path, sizeof(path), "%s/lock-", client->dir);
	client->answers = list ? 2 : 1;
	must("create", zoo_acreate(client->zh, path, NULL, -1, &ZOO_OPEN_ACL_UNSAFE,
							   ZOO_EPHEMERAL | ZOO_SEQUENCE, created, client));
	if (list)
		must("list", zoo_aget_children(client->zh, client->dir, 0, listed, client));
	pthread_mutex_lock(&client->mutex);
	while (client->answers > 0)
		pthread_cond_wait(&client->changed, &client->mutex);
	pthread_mutex_unlock(&client->mutex);
	must("delete", zoo_adelete(client->zh, client->node, -1, deleted, client));
	return true;
}

static bool
turn_flight(Client *client)
{
	return acquire_and_release(client, true);
}

static bool
turn_least(Client *client)
{
	return acquire_and_release(client, false);
}

static bool
is_lowest(const Client *client, const struct String_vector *children)
{
	const char *own = strrchr(client->node, '/') + 1;

	for (int i = 0; i < children->count; i++)
		if (strcmp(children->data[i], own) < 0)
			return false;
	return true;
}

static void
wait_for_event(Client *client, int seen)
{
	pthread_mutex_lock(&client->mutex);
	while (client->events == seen)
		pthread_cond_wait(&client->changed, &client->mutex);
	pthread_mutex_unlock(&client->mutex);
}

/* Returns the path of the predecessor; false if there is none. */
static bool
find_predecessor(const Client *client, const struct String_vector *children, char *path, size_t size)
{
	const char *own = strrchr(client->node, '/') + 1;
	const char *before = NULL;

	for (int i = 0; i < children->count; i++)
		if (strcmp(children->data[i], own) < 0 &&
			(before == NULL || strcmp(children->data[i], before) > 0))
			before = children->data[i];
	if (before)
		snprintf(path, size, "%s/%s", client->dir, before);
	return before != NULL;
}

static bool
turn_queue(Client *client)
{
	char		before[160];
	bool		in_time;

	create(client);
	for (;;)
	{
		struct String_vector children;
		int			seen = client->events;
		int			length = 0;
		int			rc;
		bool		behind;

		must("list", zoo_get_children(client->zh, client->dir, 0, &children));
		behind = find_predecessor(client, &children, before, sizeof(before));
		deallocate_String_vector(&children);
		if (!behind)
			break;
		rc = zoo_wget(client->zh, before, node_event, client, NULL, &length, NULL);
		if (rc == ZOK)
			wait_for_event(client, seen);
		else if (rc != ZNONODE)
			die("watch", rc);
	}
	in_time = now() < client->until;
	must("delete", zoo_adelete(client->zh, client->node, -1, deleted, client));
	return in_time;
}

static bool
turn_textbook(Client *client)
{
	bool		in_time;

	create(client);
	for (;;)
	{
		struct String_vector children;
		int			seen = client->events;
		bool		lowest;

		must("list", zoo_wget_children(client->zh, client->dir, node_event, client, &children));
		lowest = is_lowest(client, &children);
		deallocate_String_vector(&children);
		if (lowest)
			break;
		wait_for_event(client, seen);
	}
	in_time = now() < client->until;
	must("delete", zoo_delete(client->zh, client->node, -1));
	return in_time;
}


/*
 * Clients
 */

static void
open_session(Client *client)
{
	pthread_mutex_init(&client->mutex, NULL);
	pthread_cond_init(&client->changed, NULL);
	client->zh = zookeeper_init(hosts, session_event, SESSION_TIMEOUT_MS, NULL, client, 0);
	if (client->zh == NULL)
		die("init", ZSYSTEMERROR);
	pthread_mutex_lock(&client->mutex);
	while (!client->connected)
		pthread_cond_wait(&client->changed, &client->mutex);
	pthread_mutex_unlock(&client->mutex);
}

static void
make_node(const char *path, int mode)
{
	int			rc = zoo_create(clients[0].zh, path, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, mode, NULL, 0);

	if (rc != ZNODEEXISTS)
		must(path, rc);
}

static void *
work(void *context)
{
	Client	   *client = context;

	for (double t = now(); t < client->until; t = now())
		if (client->turn(client) && t >= client->from)
			client->count++;
	return NULL;
}

static void
open_sessions(int n)
{
	for (; opened < n; opened++)
		open_session(&clients[opened]);
	make_node(ROOT, ZOO_PERSISTENT);
}

static void
close_session(Client *client)
{
	client->connected = false;	/* events from here on are no failures */
	must("close", zookeeper_close(client->zh));
	pthread_mutex_destroy(&client->mutex);
	memset(client, 0, sizeof(*client));
}

static void
close_sessions(int n)
{
	for (; opened > n; opened--)
		close_session(&clients[opened - 1]);
}

static bool (*turn_of(const char *kind)) (Client *client)
{
	static const struct
	{
		const char *kind;
		bool		(*turn) (Client *client);
	}			last_grants[] = {
		{"sync", turn_sync}, {"flight", turn_flight}, {"least", turn_least},
		{"queue", turn_queue}, {"textbook", turn_textbook},
	};

	for (size_t i = 0; i < sizeof(last_grants) / sizeof(*last_grants); i++)
		if (strcmp(kind, last_grants[i].kind) == 0)
			return last_grants[i].turn;
	die(kind, ZBADARGUMENTS);
	return NULL;
}

static void
run(const char *kind, int n, const char *where, double lead, double seconds)
{
	static pthread_t threads[MAX_CLIENTS];
	double		from;
	double		spent;
	long		count = 0;

	open_sessions(n);
	for (int i = 0; i < n; i++)
	{
		snprintf(clients[i].dir, sizeof(clients[i].dir), ROOT "/%s%d", where,
				 strcmp(where, "own") == 0 ? i : 0);
		make_node(clients[i].dir, ZOO_PERSISTENT);
		clients[i].turn = turn_of(kind);
	}
	spent = processor_time();
	from = now() + lead;
	for (int i = 0; i < n; i++)
	{
		clients[i].from = from;
		clients[i].until = from + seconds;
		clients[i].count = 0;
		if (pthread_create(&threads[i], NULL, work, &clients[i]) != 0)
			die("thread", ZSYSTEMERROR);
	}
	for (int i = 0; i < n; i++)
	{
		pthread_join(threads[i], NULL);
		count += clients[i].count;
	}
	spent = processor_time() - spent;
	close_sessions(KEPT);
	printf("ok %ld %.0f\n", count, spent);
}

static void
times(const char *kind, double seconds)
{
	static double taken[MAX_TIMES];
	Client	   *client = &clients[0];
	double		until;
	int			n = 0;

	open_sessions(1);
	snprintf(client->dir, sizeof(client->dir), ROOT "/own0");
	make_node(client->dir, ZOO_PERSISTENT);
	client->turn = turn_of(kind);
	until = client->until = now() + seconds;
	for (double start = now(), end; start < until && n < MAX_TIMES; start = end)
	{
		client->turn(client);
		end = now();
		taken[n++] = end - start;
	}
	printf("ok");
	for (int i = 0; i < n; i++)
		printf(" %.1f", taken[i] * 1e6);
	printf("\n");
}

/* Returns the seconds until a new session has a lock. */
static double
first_lock(void)
{
	Client		client = {.dir = ROOT "/own0"};
	double		start = now();
	double		taken;

	open_session(&client);
	create(&client);
	taken = now() - start;
	close_session(&client);
	return taken;
}

static void
first(int n)
{
	open_sessions(1);
	make_node(ROOT "/own0", ZOO_PERSISTENT);
	printf("ok");
	for (int i = 0; i < n; i++)
		printf(" %.1f", first_lock() * 1e6);
	printf("\n");
}

/* Calls a function in a new process, as PostgreSQL makes them: fork without exec. */
static void
in_child(void (*work_of_child) (void))
{
	pid_t		child = fork();
	int			status;

	if (child == 0)
	{
		work_of_child();
		fflush(stdout);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		die("child", ZSYSTEMERROR);
}

static void
make_own_node(void)
{
	open_sessions(1);
	make_node(ROOT "/own0", ZOO_PERSISTENT);
	close_sessions(0);
}

static void
print_first_lock(void)
{
	printf(" %.1f", first_lock() * 1e6);
}

/* No thread may run here: a child would lack it, and inherit what it had locked. */
static void
fresh(int n)
{
	if (opened > 0)
		die("fresh", ZINVALIDSTATE);
	in_child(make_own_node);
	printf("ok");
	fflush(stdout);
	for (int i = 0; i < n; i++)
		in_child(print_first_lock);
	printf("\n");
}

/* Creates containers, a thousand at a time. */
static void
fill(const char *path, int from, int to)
{
	Client	   *client = &clients[0];
	char		child[300];

	open_sessions(1);
	for (int i = from; i < to; i++)
	{
		snprintf(child, sizeof(child), "%s/name%d", path, i);
		pthread_mutex_lock(&client->mutex);
		while (client->answers >= 1000)
			pthread_cond_wait(&client->changed, &client->mutex);
		client->answers++;
		pthread_mutex_unlock(&client->mutex);
		must("fill", zoo_acreate(client->zh, child, NULL, -1, &ZOO_OPEN_ACL_UNSAFE,
								 ZOO_CONTAINER, filled, client));
	}
	pthread_mutex_lock(&client->mutex);
	while (client->answers > 0)
		pthread_cond_wait(&client->changed, &client->mutex);
	pthread_mutex_unlock(&client->mutex);
	printf("ok %d\n", to - from);
}

int
main(int argc, char **argv)
{
	char		line[512];

	if (argc != 2)
		return 2;
	hosts = argv[1];
	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin) != NULL)
	{
		char		word[256],
					where[16];
		int			from,
					to;
		double		lead,
					seconds;

		if (sscanf(line, "run %15s %d %15s %lf %lf", word, &to, where, &lead, &seconds) == 5
			&& to > 0 && to <= MAX_CLIENTS)
			run(word, to, where, lead, seconds);
		else if (sscanf(line, "times %15s %lf", word, &seconds) == 2)
			times(word, seconds);
		else if (sscanf(line, "first %d", &to) == 1 && to > 0 && to <= MAX_TIMES)
			first(to);
		else if (sscanf(line, "fresh %d", &to) == 1 && to > 0 && to <= MAX_TIMES)
			fresh(to);
		else if (sscanf(line, "fill %255s %d %d", word, &from, &to) == 3)
			fill(word, from, to);
		else
			die("order", ZBADARGUMENTS);
	}
	return 0;
}
