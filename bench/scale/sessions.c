/*-------------------------------------------------------------------------
 *
 * sessions.c
 *		Many ZooKeeper sessions of zklock in one process, without PostgreSQL.
 *
 *	 sessions CONNECT_STRING TIMEOUT_MS
 *
 * Reads commands from standard input, each a line of words, and answers "ok" and
 * numbers:
 *
 *	 open N				opens sessions until N are connected
 *	 hold				each session acquires a lock of its own and keeps it
 *	 rate N SECONDS		N of the sessions lock and unlock, each a lock of its own:
 *						the number of locks acquired
 *	 storm PID			kills the process, and each session confirms its lock:
 *						milliseconds until one, half and all of the sessions have
 *						confirmed, the number of sessions lost, and the most
 *						connections that were tried within WINDOW_MS
 *	 close				ends all sessions
 *
 * Each session has its own thread, as in a backend; all of them share the library's
 * mutex, which backends, being processes, do not.  bench/scale/scale.py is the only
 * caller.
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "recipe/recipe.h"

#define MAX_SESSIONS 5000
#define LOOK_US 2000

/* storm: connections tried within this time */
#define WINDOW_MS 100
#define MAX_SAMPLES 100000
#define CLOSE_MS 5000

/* Sessions that are opened at once: a server's queue for new connections is short. */
#define OPENING 25

typedef struct Session
{
	ZklSession *session;
	ZklLock    *lock;			/* that it keeps, or NULL */
	int			number;
	bool		is_done;		/* storm */
	double		until;			/* rate */
	long		count;
} Session;

static Session sessions[MAX_SESSIONS];
static int	n_sessions;
static const char *connect_string;
static int	timeout_ms;


static void
die(const char *what, const char *why)
{
	printf("error %s: %s\n", what, why);
	fflush(stdout);
	exit(1);
}

static double
now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec * 1000 + (double) t.tv_nsec / 1e6;
}

static void
wait_changed(ZklSession *session)
{
	struct pollfd fd = {.fd = zkl_session_fd(session),.events = POLLIN};

	poll(&fd, 1, 1000);
	zkl_session_receive(session);
}

static ZklLock *
lock(Session *s, const char *action)
{
	char		name[32];
	ZklLockItem item = {.name = name,.mode = ZKL_MODE_EXCLUSIVE};
	ZklRequest *request;
	ZklStatus	status;
	ZklLock    *result;

	snprintf(name, sizeof(name), "%s%d", action, s->number);
	request = zkl_lock_request(s->session, &item, 1, false, "scale", 5);
	if (request == NULL)
		die("lock", "out of memory");
	while ((status = zkl_request_status(request)) == ZKL_PENDING)
		wait_changed(s->session);
	if (status != ZKL_OK)
	{
		char		why[32];

		snprintf(why, sizeof(why), "status %d", (int) status);
		die("lock", why);
	}
	result = zkl_request_lock(request, 0);
	zkl_request_end(request);
	return result;
}


/*
 * Commands
 */

static void
open_one(Session *s)
{
	ZklSessionConfig config = {
		.connect_string = connect_string,
		.root = "/scale",
		.session_timeout_ms = timeout_ms,
		.node_names = ZKL_NODE_NAMES_CURATOR,
		.max_nodes = 100,
	};

	s->session = zkl_session_open(&config);
	if (s->session == NULL)
		die("open", "no memory, descriptors or threads");
}

static void
wait_connected(const Session *s)
{
	while (zkl_session_state(s->session) != ZKL_SESSION_CONNECTED)
		usleep(LOOK_US);
}

static void
open_sessions(int n)
{
	while (n_sessions < n)
	{
		int			from = n_sessions;

		while (n_sessions < n && n_sessions < from + OPENING)
		{
			sessions[n_sessions].number = n_sessions;
			open_one(&sessions[n_sessions++]);
		}
		for (int i = from; i < n_sessions; i++)
			wait_connected(&sessions[i]);
	}
	printf("ok\n");
}

static void
hold(void)
{
	for (int i = 0; i < n_sessions; i++)
		if (sessions[i].lock == NULL)
			sessions[i].lock = lock(&sessions[i], "held");
	printf("ok\n");
}

static void *
rate_main(void *arg)
{
	Session    *s = arg;

	for (s->count = 0; now_ms() < s->until; s->count++)
		zkl_lock_reduce(lock(s, "rate"), ZKL_MODE_NONE);
	return NULL;
}

static void
rate(int n, double seconds)
{
	static pthread_t threads[MAX_SESSIONS];
	double		until = now_ms() + seconds * 1000;
	long		count = 0;

	for (int i = 0; i < n; i++)
	{
		sessions[i].until = until;
		if (pthread_create(&threads[i], NULL, rate_main, &sessions[i]) != 0)
			die("rate", "no threads");
	}
	for (int i = 0; i < n; i++)
	{
		pthread_join(threads[i], NULL);
		count += sessions[i].count;
	}
	printf("ok %ld\n", count);
}

/* Has this session confirmed or lost its lock?  Counts lost sessions. */
static bool
has_recovered(Session *s, int *lost)
{
	ZklStatus	status = zkl_session_confirmed(s->session);

	if (status == ZKL_PENDING)
		return false;
	if (status == ZKL_SESSION_LOST || zkl_lock_is_lost(s->lock))
		++*lost;
	else if (status != ZKL_OK)
	{
		zkl_session_confirm(s->session, true);
		return false;
	}
	return true;
}

/* Returns how many connections this machine has tried to open. */
static long
connections_tried(void)
{
	FILE	   *file = fopen("/proc/net/snmp", "r");
	char		line[1024];
	long		tried = 0;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Tcp: %*d %*d %*d %*d %ld", &tried) == 1)
			break;
	if (file)
		fclose(file);
	return tried;
}

/* Notes connections_tried(); returns the greatest number within WINDOW_MS until now. */
static long
busiest(double at_ms)
{
	static struct
	{
		double		at_ms;
		long		tried;
	}			samples[MAX_SAMPLES];
	static int	n = 0;
	static int	oldest = 0;
	static long most = 0;
	long		tried = connections_tried();

	if (at_ms == 0 || n == MAX_SAMPLES)
		n = oldest = most = 0;
	samples[n].at_ms = at_ms;
	samples[n++].tried = tried;
	while (samples[oldest].at_ms < at_ms - WINDOW_MS)
		oldest++;
	if (tried - samples[oldest].tried > most)
		most = tried - samples[oldest].tried;
	return most;
}

static void
storm(int pid)
{
	double		start = now_ms();
	long		most = 0;
	double		first = 0;
	double		half = 0;
	int			done = 0;
	int			lost = 0;

	busiest(0);
	if (kill(pid, SIGKILL) != 0)
		die("storm", "no such process");
	for (int i = 0; i < n_sessions; i++)
	{
		sessions[i].is_done = false;
		zkl_session_confirm(sessions[i].session, true);
	}
	while (done < n_sessions)
	{
		for (int i = 0; i < n_sessions; i++)
			if (!sessions[i].is_done && has_recovered(&sessions[i], &lost))
			{
				sessions[i].is_done = true;
				done++;
				if (done == 1)
					first = now_ms() - start;
				if (done == (n_sessions + 1) / 2)
					half = now_ms() - start;
			}
		most = busiest(now_ms() - start);
		usleep(LOOK_US);
	}
	printf("ok %.0f %.0f %.0f %d %ld\n", first, half, now_ms() - start, lost, most);
}

static void *
close_main(void *arg)
{
	zkl_session_close(((Session *) arg)->session, CLOSE_MS);
	return NULL;
}

static void
close_sessions(void)
{
	static pthread_t threads[MAX_SESSIONS];

	for (int i = 0; i < n_sessions; i++)
		if (pthread_create(&threads[i], NULL, close_main, &sessions[i]) != 0)
			die("close", "no threads");
	for (int i = 0; i < n_sessions; i++)
		pthread_join(threads[i], NULL);
	memset(sessions, 0, sizeof(sessions));
	n_sessions = 0;
	printf("ok\n");
}

int
main(int argc, char **argv)
{
	struct rlimit files;
	char		line[200];

	if (argc != 3)
		return 2;
	connect_string = argv[1];
	timeout_ms = atoi(argv[2]);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0)
	{
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	zkl_log_set_level(ZKL_LOG_ERROR);
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin) != NULL)
	{
		int			n;
		double		seconds;

		if (sscanf(line, "open %d", &n) == 1 && n > 0 && n <= MAX_SESSIONS)
			open_sessions(n);
		else if (strcmp(line, "hold\n") == 0)
			hold();
		else if (sscanf(line, "rate %d %lf", &n, &seconds) == 2 && n <= n_sessions)
			rate(n, seconds);
		else if (sscanf(line, "storm %d", &n) == 1)
			storm(n);
		else if (strcmp(line, "close\n") == 0)
			close_sessions();
		else
			die("order", line);
	}
	return 0;
}
