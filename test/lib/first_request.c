/*-------------------------------------------------------------------------
 *
 * first_request.c
 *		Reads a znode in the first request of a connection, with credentials.
 *
 * usage: first_request connect-string user:password path
 *
 * Prints "read", "no_auth", or another outcome.
 *
 *-------------------------------------------------------------------------
 */
#include <semaphore.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>

#include "recipe/zookeeper/client.h"

typedef struct FirstRead
{
	ZklCompletion completion;	/* first: the client casts from it */
	ZklClient  *client;
	const char *path;
	const char *outcome;
	sem_t		is_open;		/* "client" is set */
	sem_t		is_answered;
} FirstRead;

static void
done_io(ZklCompletion *completion, const ZklResult *result)
{
	FirstRead  *read = (FirstRead *) completion;

	read->outcome = result->code == ZKL_RC_OK ? "read"
		: result->code == ZKL_RC_NO_AUTH ? "no_auth" : "not read";
	sem_post(&read->is_answered);
}

static void
connection_io(void *context, ZklConnectionEvent event, const ZklConnectionInfo *info)
{
	FirstRead  *read = context;
	ZklOp		op = {.kind = ZKL_OP_GET, .path = read->path};

	(void) info;
	if (event != ZKL_EVENT_CONNECTED)
		return;
	sem_wait(&read->is_open);
	if (!zkl_client_submit(read->client, ZKL_SINGLE, &op, 1, &read->completion))
		sem_post(&read->is_answered);
}

static void
watch_io(void *context, const char *path)
{
	(void) context;
	(void) path;
}

static void
nothing_io(void *context)
{
	(void) context;
}

int
main(int argc, char **argv)
{
	static const ZklEvents events = {connection_io, watch_io, nothing_io, nothing_io};
	FirstRead	read = {.completion.done_io = done_io, .outcome = "no answer"};
	ZklClientConfig config = {.session_timeout_ms = 10000, .wait_fd = epoll_create1(0)};
	struct timespec until;

	if (argc != 4)
		return 2;
	config.connect_string = argv[1];
	config.digest = argv[2];
	read.path = argv[3];
	sem_init(&read.is_open, 0, 0);
	sem_init(&read.is_answered, 0, 0);
	read.client = zkl_client_open(&config, &events, &read);
	if (read.client == NULL)
		return 1;
	sem_post(&read.is_open);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 60;
	(void) sem_timedwait(&read.is_answered, &until);
	puts(read.outcome);
	(void) zkl_client_close(read.client, 10000);
	return 0;
}
