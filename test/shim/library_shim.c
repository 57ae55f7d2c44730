/*-------------------------------------------------------------------------
 *
 * library_shim.c
 *		A library to preload that makes the ZooKeeper client library misbehave.
 *
 * Each function below works like the real one until a file with the name of its
 * fault exists in the directory ZKLOCK_SHIM_DIR:
 *
 *   names    names are not resolved: getaddrinfo() does not return
 *   late     the first lookup of a name in a process returns only later what it has found
 *   epoll    epoll_ctl() adds no connection
 *   init     zookeeper_init2() does not return
 *   events   the session watcher is not called
 *   answers  no completion is called
 *   close    zookeeper_close() does not return
 *   polls    a thread that is not the first one of a process does not wake up from its sleep
 *   unlocks  the first thread of a process sleeps after each unlock of a mutex
 *   suspend  the clock that counts the time for which the machine was suspended has gone on by an
 *            hour; the other clocks have not
 *   exits    at exit(), a process that still has other threads creates a file named
 *            "threads"
 *
 * A function that does not return continues when the file is deleted; a callback
 * that was skipped is never called.  test/lib/ZkLock/Shim.pm builds this library
 * and creates the files.
 *
 *-------------------------------------------------------------------------
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <zookeeper/zookeeper.h>

#define SUSPENDED_S 3600

/* Long enough for another thread to change the data that the mutex guards. */
#define UNLOCK_US 200000

#define REAL(function) ((__typeof__(&function)) dlsym(RTLD_NEXT, #function))

typedef struct Call
{
	union
	{
		watcher_fn	watcher;
		void_completion_t nothing;
		data_completion_t data;
		strings_completion_t strings;
		string_completion_t string;
		string_stat_completion_t created;
		stat_completion_t stat;
		acl_completion_t acl;
	}			then;
	const void *arg;
} Call;

static bool
is_broken(const char *fault)
{
	const char *dir = getenv("ZKLOCK_SHIM_DIR");
	char		path[1024];

	if (dir == NULL)
		return false;
	snprintf(path, sizeof(path), "%s/%s", dir, fault);
	return access(path, F_OK) == 0;
}

static void
block_while_broken(const char *fault)
{
	while (is_broken(fault))
		usleep(10000);
}

/* The arguments of an answer; freed when the answer arrives. */
static Call *
call_new(const void *arg)
{
	Call	   *call = calloc(1, sizeof(Call));

	if (call == NULL)
		abort();
	call->arg = arg;
	return call;
}

/* Frees the call; returns false if the answer is to be suppressed. */
static bool
call_ended(const void *data, Call *call)
{
	*call = *(const Call *) data;
	free((void *) data);
	return !is_broken("answers");
}

/* Runs when libraries are cleaned up. */
static void
__attribute__((destructor))
count_threads(void)
{
	char		path[1024];
	struct stat tasks;

	/* Of a directory's links two are not subdirectories. */
	if (!is_broken("exits") || stat("/proc/self/task", &tasks) != 0 || tasks.st_nlink <= 3)
		return;
	snprintf(path, sizeof(path), "%s/threads", getenv("ZKLOCK_SHIM_DIR"));
	close(open(path, O_CREAT | O_WRONLY, 0600));
}

static bool
is_address(const char *node)
{
	char		address[16];

	return inet_pton(AF_INET, node, address) == 1 || inet_pton(AF_INET6, node, address) == 1;
}

int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
			struct addrinfo **res)
{
	static bool is_late;
	int			result;

	if (!is_address(node))
		block_while_broken("names");
	result = REAL(getaddrinfo) (node, service, hints, res);
	if (result == 0 && !is_address(node) && is_broken("late") &&
		!__atomic_exchange_n(&is_late, true, __ATOMIC_SEQ_CST))
		block_while_broken("late");
	return result;
}

int
epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	struct sockaddr_in peer;
	socklen_t	size = sizeof(peer);

	if (op == EPOLL_CTL_ADD && getpeername(fd, (struct sockaddr *) &peer, &size) == 0 &&
		peer.sin_family == AF_INET && is_broken("epoll"))
	{
		errno = ENOSPC;
		return -1;
	}
	return REAL(epoll_ctl) (epfd, op, fd, event);
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int			result = REAL(clock_gettime) (clock, now);

	if (clock == CLOCK_BOOTTIME && is_broken("suspend"))
		now->tv_sec += SUSPENDED_S;
	return result;
}

/* Only the I/O thread waits for two descriptors. */
int
poll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	int			result = REAL(poll) (fds, nfds, timeout);
	int			save_errno = errno;

	if (nfds == 2 && gettid() != getpid())
		block_while_broken("polls");
	errno = save_errno;
	return result;
}

int
pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	int			result = REAL(pthread_mutex_unlock) (mutex);
	int			save_errno = errno;

	if (gettid() == getpid() && is_broken("unlocks"))
		usleep(UNLOCK_US);
	errno = save_errno;
	return result;
}

/* The watcher may be called until the handle is closed, so its Call is not freed. */
static void
pass_event(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	Call	   *call = context;

	if (!is_broken("events"))
		call->then.watcher(zh, type, state, path, (void *) call->arg);
}

zhandle_t *
zookeeper_init2(const char *host, watcher_fn fn, int recv_timeout,
				const clientid_t *clientid, void *context, int flags,
				log_callback_fn log_callback)
{
	Call	   *call = call_new(context);

	call->then.watcher = fn;
	block_while_broken("init");
	return REAL(zookeeper_init2) (host, pass_event, recv_timeout, clientid, call,
								  flags, log_callback);
}

int
zookeeper_close(zhandle_t *zh)
{
	block_while_broken("close");
	return REAL(zookeeper_close) (zh);
}

static void
pass_nothing(int rc, const void *data)
{
	Call		call;

	if (call_ended(data, &call))
		call.then.nothing(rc, call.arg);
}

static void
pass_data(int rc, const char *value, int value_len, const struct Stat *stat,
		  const void *data)
{
	Call		call;

	if (call_ended(data, &call))
		call.then.data(rc, value, value_len, stat, call.arg);
}

static void
pass_strings(int rc, const struct String_vector *strings, const void *data)
{
	Call		call;

	if (call_ended(data, &call))
		call.then.strings(rc, strings, call.arg);
}

static void
pass_string(int rc, const char *value, const void *data)
{
	Call		call;

	if (call_ended(data, &call))
		call.then.string(rc, value, call.arg);
}

static void
pass_created(int rc, const char *value, const struct Stat *stat, const void *data)
{
	Call		call;

	if (call_ended(data, &call))
		call.then.created(rc, value, stat, call.arg);
}

static void
pass_stat(int rc, const struct Stat *stat, const void *data)
{
	Call		call;

	if (call_ended(data, &call))
		call.then.stat(rc, stat, call.arg);
}

static void
pass_acl(int rc, struct ACL_vector *acl, struct Stat *stat, const void *data)
{
	Call		call;

	if (call_ended(data, &call))
		call.then.acl(rc, acl, stat, call.arg);
}

int
zoo_acreate2(zhandle_t *zh, const char *path, const char *value, int valuelen,
			 const struct ACL_vector *acl, int mode,
			 string_stat_completion_t completion, const void *data)
{
	Call	   *call = call_new(data);

	call->then.created = completion;
	return REAL(zoo_acreate2) (zh, path, value, valuelen, acl, mode, pass_created, call);
}

int
zoo_adelete(zhandle_t *zh, const char *path, int version,
			void_completion_t completion, const void *data)
{
	Call	   *call = call_new(data);

	call->then.nothing = completion;
	return REAL(zoo_adelete) (zh, path, version, pass_nothing, call);
}

int
zoo_awget(zhandle_t *zh, const char *path, watcher_fn watcher, void *context,
		  data_completion_t completion, const void *data)
{
	Call	   *call = call_new(data);

	call->then.data = completion;
	return REAL(zoo_awget) (zh, path, watcher, context, pass_data, call);
}

int
zoo_awget_children(zhandle_t *zh, const char *path, watcher_fn watcher, void *context,
				   strings_completion_t completion, const void *data)
{
	Call	   *call = call_new(data);

	call->then.strings = completion;
	return REAL(zoo_awget_children) (zh, path, watcher, context, pass_strings, call);
}

int
zoo_aset(zhandle_t *zh, const char *path, const char *buffer, int buflen, int version,
		 stat_completion_t completion, const void *data)
{
	Call	   *call = call_new(data);

	call->then.stat = completion;
	return REAL(zoo_aset) (zh, path, buffer, buflen, version, pass_stat, call);
}

int
zoo_aget_acl(zhandle_t *zh, const char *path, acl_completion_t completion, const void *data)
{
	Call	   *call = call_new(data);

	call->then.acl = completion;
	return REAL(zoo_aget_acl) (zh, path, pass_acl, call);
}

int
zoo_async(zhandle_t *zh, const char *path, string_completion_t completion,
		  const void *data)
{
	Call	   *call = call_new(data);

	call->then.string = completion;
	return REAL(zoo_async) (zh, path, pass_string, call);
}

int
zoo_amulti(zhandle_t *zh, int count, const zoo_op_t *ops, zoo_op_result_t *results,
		   void_completion_t completion, const void *data)
{
	Call	   *call = call_new(data);

	call->then.nothing = completion;
	return REAL(zoo_amulti) (zh, count, ops, results, pass_nothing, call);
}
