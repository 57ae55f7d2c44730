/*-------------------------------------------------------------------------
 *
 * slow_wire.c
 *		A library to preload that slows down the connection to ZooKeeper.
 *
 * In a PostgreSQL server each send() and recv() on an IPv4 connection is delayed by
 * ZKLOCK_SLOW_MS milliseconds.  This affects only zklock's connections to ZooKeeper,
 * since psql and the tests use a Unix socket.  A test that expects an effect immediately
 * after a statement, without waiting for it, then fails.  Other programs are not
 * affected.  `scripts/test --slow` builds it.
 *
 *-------------------------------------------------------------------------
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static long slow_ms;
static ssize_t (*real_send) (int, const void *, size_t, int);
static ssize_t (*real_recv) (int, void *, size_t, int);

__attribute__((constructor))
static void
prepare(void)
{
	const char *value = getenv("ZKLOCK_SLOW_MS");

	real_send = (__typeof__(real_send)) dlsym(RTLD_NEXT, "send");
	real_recv = (__typeof__(real_recv)) dlsym(RTLD_NEXT, "recv");
	if (value && strcmp(program_invocation_short_name, "postgres") == 0)
		slow_ms = atol(value);
}

static void
delay(int fd)
{
	struct sockaddr_storage peer;
	socklen_t	length = sizeof(peer);
	struct timespec pause = {slow_ms / 1000, slow_ms % 1000 * 1000000};

	if (slow_ms > 0 && getpeername(fd, (struct sockaddr *) &peer, &length) == 0 &&
		peer.ss_family == AF_INET)
		nanosleep(&pause, NULL);
}

ssize_t
send(int fd, const void *data, size_t length, int flags)
{
	delay(fd);
	return real_send(fd, data, length, flags);
}

ssize_t
recv(int fd, void *data, size_t length, int flags)
{
	delay(fd);
	return real_recv(fd, data, length, flags);
}
