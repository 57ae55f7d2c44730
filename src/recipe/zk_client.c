/*-------------------------------------------------------------------------
 *
 * zk_client.c
 *		The client seam, implemented with libzookeeper_mt.
 *
 * All but multis, which are in zk_multi.c.  Each client has a thread of its
 * own besides the library's two, the keeper (keeper.c): it opens and closes
 * the library's handle, so that the owner never waits for that.
 *
 * The library's traps that this file takes care of:
 * - its threads inherit the signal mask: the keeper starts with all blocked;
 * - a failing pthread_create inside it aborts the process: tried before;
 * - it reseeds the process's random numbers and asks the name service at every
 *   turn of its loop, unless told otherwise;
 * - requests in flight when it is closed are never answered;
 * - with TLS it takes no function for its log lines, only a stream.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "keeper.h"
#include "log.h"
#include "zk_library.h"

struct ZklClient
{
	ZklKeeper  *keeper;
	ZklEvents	events;
	void	   *context;
	char	   *connect_string;
	char	   *digest;
	char	   *tls;
	int			session_timeout_ms;
	struct ACL_vector *acl;
	zhandle_t  *zh;				/* set before the first event is passed on */
	ZklMultis	multis;
	bool		answers_due;	/* when it is closed */
	sem_t		last_answer;
};

/* How long to wait for answers before the good-bye. */
#define LAST_ANSWER_S 1

static struct ACL creator_acls[] = {
	{0x1f, {"auth", ""}},		/* all rights */
	{0x01, {"world", "anyone"}},	/* read, for waiters and views of others */
};
static struct ACL_vector creator_acl = {2, creator_acls};


int64_t
zkl_client_now(void)
{
	return zkl_keeper_now();
}

void
zkl_client_set_log_level(int level)
{
	zoo_set_debug_level((ZooLogLevel) level);
}

ZklResultCode
zkl_zk_code(int rc)
{
	switch (rc)
	{
		case ZOK:
			return ZKL_RC_OK;
		case ZCONNECTIONLOSS:
		case ZOPERATIONTIMEOUT:
		case ZRUNTIMEINCONSISTENCY: /* an answer is missing: the library reconnects */
		case ZSESSIONMOVED:		/* the connection is about to go */
		case ZTHROTTLEDOP:		/* not done; may be tried again */
			return ZKL_RC_CONNECTION_LOSS;
		case ZNONODE:
			return ZKL_RC_NO_NODE;
		case ZNODEEXISTS:
			return ZKL_RC_NODE_EXISTS;
		case ZNOTEMPTY:
			return ZKL_RC_NOT_EMPTY;
		case ZBADVERSION:
			return ZKL_RC_BAD_VERSION;
		case ZNOAUTH:
		case ZINVALIDACL:
			return ZKL_RC_NO_AUTH;
		case ZAUTHFAILED:
		case ZSESSIONCLOSEDREQUIRESASLAUTH:
			return ZKL_RC_AUTH_FAILED;
		case ZSESSIONEXPIRED:
		case ZCLOSING:
		case ZINVALIDSTATE:
			return ZKL_RC_SESSION_EXPIRED;
		case ZUNIMPLEMENTED:
			return ZKL_RC_UNIMPLEMENTED;
		default:
			return ZKL_RC_OTHER;
	}
}


/*
 * Events
 */

/* Where the handle is connected to, as address:port. */
static void
describe_server(zhandle_t *zh, char *out, size_t size)
{
	struct sockaddr_storage address;
	socklen_t	length = sizeof(address);
	char		host[NI_MAXHOST];
	char		port[NI_MAXSERV];

	out[0] = '\0';
	if (zookeeper_get_connected_host(zh, (struct sockaddr *) &address, &length) &&
		getnameinfo((struct sockaddr *) &address, length, host, sizeof(host),
					port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		snprintf(out, size, address.ss_family == AF_INET6 ? "[%.45s]:%.5s"
				 : "%.45s:%.5s", host, port);
}

static void
session_watcher_io(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	ZklClient  *client = context;
	ZklConnectionInfo info = {0};
	ZklConnectionEvent event = ZKL_EVENT_DISCONNECTED;

	(void) path;
	if (type != ZOO_SESSION_EVENT || !zkl_keeper_wait_open_io(client->keeper))
		return;
	if (state == ZOO_CONNECTED_STATE)
	{
		event = ZKL_EVENT_CONNECTED;
		info.session_id = zoo_client_id(zh)->client_id;
		info.session_timeout_ms = zoo_recv_timeout(zh);
		describe_server(zh, info.server, sizeof(info.server));
	}
	else if (state == ZOO_EXPIRED_SESSION_STATE)
		event = ZKL_EVENT_EXPIRED;
	else if (state == ZOO_AUTH_FAILED_STATE)
		event = ZKL_EVENT_AUTH_FAILED;
	client->events.connection_io(client->context, event, &info);
}

/* The library calls this for session events, too; those are not about the node. */
static void
node_watcher_io(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	ZklClient  *client = context;

	(void) zh;
	(void) state;
	if (type != ZOO_SESSION_EVENT && path)
		client->events.watch_io(client->context, path);
}


/*
 * Opening and closing
 */

/*
 * The library tries its servers in the order given (it is told not to shuffle,
 * because it reseeds the process's random numbers to do so): every client gets
 * an order of its own here.
 */
static char *
shuffled(const char *connect_string)
{
	const char *chroot = strchr(connect_string, '/');
	size_t		hosts_length = chroot ? (size_t) (chroot - connect_string)
		: strlen(connect_string);
	char	   *hosts = strndup(connect_string, hosts_length);
	char	   *result = malloc(strlen(connect_string) + 2);
	const char *list[64];
	unsigned	seed = (unsigned) getpid() * 2654435761u ^ (unsigned) zkl_client_now();
	char	   *save;
	int			n = 0;

	if (hosts == NULL || result == NULL)
	{
		free(hosts);
		free(result);
		return NULL;
	}
	for (char *host = strtok_r(hosts, ",", &save); host && n < 64;
		 host = strtok_r(NULL, ",", &save))
		list[n++] = host;
	result[0] = '\0';
	while (n > 0)
	{
		int			i = (int) (rand_r(&seed) % (unsigned) n);

		strcat(result, list[i]);
		list[i] = list[--n];
		if (n > 0)
			strcat(result, ",");
	}
	if (chroot)
		strcat(result, chroot);
	free(hosts);
	return result;
}

static void *
rehearsal_io(void *barrier)
{
	pthread_barrier_wait(barrier);
	return NULL;
}

/* Can the two threads be had that the library is about to start? */
static bool
threads_available(void)
{
	pthread_barrier_t barrier;
	pthread_t	threads[2];
	bool		available;

	pthread_barrier_init(&barrier, NULL, 2);
	if (pthread_create(&threads[0], NULL, rehearsal_io, &barrier) != 0)
	{
		pthread_barrier_destroy(&barrier);
		return false;
	}
	available = pthread_create(&threads[1], NULL, rehearsal_io, &barrier) == 0;
	if (available)
		pthread_join(threads[1], NULL);
	else
		pthread_barrier_wait(&barrier);
	pthread_join(threads[0], NULL);
	pthread_barrier_destroy(&barrier);
	return available;
}

static void
auth_answered_io(int rc, const void *data)
{
	(void) rc;					/* a refusal also comes as a session event */
	(void) data;
}

/* Never without TLS if that is wanted. */
static zhandle_t *
get_handle(ZklClient *client, const char *hosts)
{
	if (client->tls == NULL)
		return zookeeper_init2(hosts, session_watcher_io, client->session_timeout_ms,
							   NULL, client, ZOO_NO_LOG_CLIENTENV, zkl_log_keep_io);
#ifdef ZKLOCK_HAVE_TLS
	zoo_set_log_stream(zkl_log_stream());
	return zookeeper_init_ssl(hosts, client->tls, session_watcher_io,
							  client->session_timeout_ms, NULL, client,
							  ZOO_NO_LOG_CLIENTENV);
#else
	return NULL;
#endif
}

/* One try to get a handle; resolves names. */
static bool
open_io(void *arg)
{
	ZklClient  *client = arg;
	char	   *hosts = shuffled(client->connect_string);

	zoo_deterministic_conn_order(1);
	if (hosts && threads_available())
		client->zh = get_handle(client, hosts);
	free(hosts);
	if (client->zh == NULL)
		return false;
	zoo_set_servers_resolution_delay(client->zh, -1);
	if (client->digest)
		zoo_add_auth(client->zh, "digest", client->digest,
					 (int) strlen(client->digest), auth_answered_io, NULL);
	return true;
}

static void
alarm_io(void *arg)
{
	ZklClient  *client = arg;

	client->events.alarm_io(client->context);
}

static void
last_answer_io(int rc, const struct Stat *stat, const void *data)
{
	(void) rc;
	(void) stat;
	sem_post((sem_t *) data);
}

/*
 * The library closes its socket right behind the good-bye.  Where answers come
 * after that, the connection is reset, and a server that cannot answer drops
 * what it has not read yet: deletes, and the good-bye, so that the session's
 * nodes stand until it times out.  So something is asked last, and answered
 * last.
 */
static void
await_answers(ZklClient *client)
{
	struct timespec until;

	if (zoo_state(client->zh) != ZOO_CONNECTED_STATE ||
		zoo_aexists(client->zh, "/", 0, last_answer_io, &client->last_answer) != ZOK)
		return;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += LAST_ANSWER_S;
	while (sem_clockwait(&client->last_answer, CLOCK_MONOTONIC, &until) != 0 &&
		   errno == EINTR)
		;
}

/* Says good-bye if connected, and joins the library's threads. */
static void
close_io(void *arg)
{
	ZklClient  *client = arg;

	if (client->zh == NULL)
		return;
	if (client->answers_due)
		await_answers(client);
	zookeeper_close(client->zh);
}

static void
client_free_io(void *arg, bool abandoned)
{
	ZklClient  *client = arg;

	if (abandoned)
		client->events.abandoned_io(client->context);
	zkl_multis_free(&client->multis);
	sem_destroy(&client->last_answer);
	if (client->digest)
		explicit_bzero(client->digest, strlen(client->digest));
	free(client->digest);
	free(client->tls);
	free(client->connect_string);
	free(client);
}

ZklClient *
zkl_client_open(const ZklClientConfig *config, const ZklEvents *events, void *context)
{
	static const ZklKeeperDuties duties = {open_io, alarm_io, close_io, client_free_io};
	ZklClient  *client = calloc(1, sizeof(ZklClient));

	if (client == NULL)
		return NULL;
	zkl_multis_init(&client->multis);
	sem_init(&client->last_answer, 0, 0);
	client->events = *events;
	client->context = context;
	client->session_timeout_ms = config->session_timeout_ms;
	client->acl = config->creator_acl ? &creator_acl : &ZOO_OPEN_ACL_UNSAFE;
	client->connect_string = strdup(config->connect_string);
	if (config->digest)
		client->digest = strdup(config->digest);
	if (config->tls)
		client->tls = strdup(config->tls);
	if (client->connect_string && (config->digest == NULL || client->digest) &&
		(config->tls == NULL || client->tls))
		zkl_keeper_start(&client->keeper, &duties, client);
	if (client->keeper == NULL)
	{
		client_free_io(client, false);
		return NULL;
	}
	return client;
}

bool
zkl_client_close(ZklClient *client, bool answers_due, int timeout_ms)
{
	client->answers_due = answers_due;
	return zkl_keeper_stop(client->keeper, timeout_ms);
}

void
zkl_client_set_alarm(ZklClient *client, int64_t at_ms)
{
	zkl_keeper_set_alarm(client->keeper, at_ms);
}


/*
 * Operations
 */

void
zkl_zk_answer_io(const void *completion, ZklResult *result, int rc)
{
	ZklCompletion *c = (ZklCompletion *) completion;

	result->code = zkl_zk_code(rc);
	result->raw_code = rc;
	c->done_io(c, result);
}

static void
created_io(int rc, const char *path, const struct Stat *stat, const void *completion)
{
	ZklResult	result = {.path = path, .czxid = rc == ZOK && stat ? stat->czxid : 0};

	zkl_zk_answer_io(completion, &result, rc);
}

static void
got_io(int rc, const char *data, int data_len, const struct Stat *stat,
	   const void *completion)
{
	ZklResult	result = {.data = data, .data_len = rc == ZOK ? data_len : 0};

	if (rc == ZOK && stat)
	{
		result.czxid = stat->czxid;
		result.version = stat->version;
		result.owner = stat->ephemeralOwner;
		result.ctime_ms = stat->ctime;
	}
	zkl_zk_answer_io(completion, &result, rc);
}

static void
set_io(int rc, const struct Stat *stat, const void *completion)
{
	ZklResult	result = {0};

	(void) stat;
	zkl_zk_answer_io(completion, &result, rc);
}

static void
listed_io(int rc, const struct String_vector *children, const void *completion)
{
	ZklResult	result = {0};

	if (rc == ZOK && children)
	{
		result.children = (const char *const *) children->data;
		result.n_children = children->count;
	}
	zkl_zk_answer_io(completion, &result, rc);
}

static void
synced_io(int rc, const char *path, const void *completion)
{
	ZklResult	result = {.path = path};

	zkl_zk_answer_io(completion, &result, rc);
}

static void
deleted_io(int rc, const void *completion)
{
	ZklResult	result = {0};

	zkl_zk_answer_io(completion, &result, rc);
}

int
zkl_zk_create_mode(ZklCreateKind kind)
{
	switch (kind)
	{
		case ZKL_CREATE_CONTAINER:
			return ZOO_CONTAINER;
		case ZKL_CREATE_EPHEMERAL:
			return ZOO_EPHEMERAL;
		case ZKL_CREATE_EPHEMERAL_SEQUENTIAL:
			return ZOO_EPHEMERAL_SEQUENTIAL;
		case ZKL_CREATE_PERSISTENT:
			break;
	}
	return ZOO_PERSISTENT;
}

bool
zkl_client_create(ZklClient *client, const char *path, const char *data,
				  int data_len, ZklCreateKind kind, ZklCompletion *completion)
{
	return zoo_acreate2(client->zh, path, data, data_len, client->acl,
						zkl_zk_create_mode(kind), created_io, completion) == ZOK;
}

bool
zkl_client_delete(ZklClient *client, const char *path, ZklCompletion *completion)
{
	return zoo_adelete(client->zh, path, -1, deleted_io, completion) == ZOK;
}

bool
zkl_client_get(ZklClient *client, const char *path, bool watch,
			   ZklCompletion *completion)
{
	return zoo_awget(client->zh, path, watch ? node_watcher_io : NULL, client,
					 got_io, completion) == ZOK;
}

bool
zkl_client_set(ZklClient *client, const char *path, const char *data,
			   int data_len, int32_t version, ZklCompletion *completion)
{
	return zoo_aset(client->zh, path, data, data_len, version, set_io,
					completion) == ZOK;
}

bool
zkl_client_list(ZklClient *client, const char *path, ZklCompletion *completion)
{
	return zoo_aget_children(client->zh, path, 0, listed_io, completion) == ZOK;
}

bool
zkl_client_watch_children(ZklClient *client, const char *path,
						  ZklCompletion *completion)
{
	return zoo_awget_children(client->zh, path, node_watcher_io, client,
							  listed_io, completion) == ZOK;
}

bool
zkl_client_sync(ZklClient *client, const char *path, ZklCompletion *completion)
{
	return zoo_async(client->zh, path, synced_io, completion) == ZOK;
}

bool
zkl_client_multi(ZklClient *client, const ZklOp *ops, int n_ops,
				 ZklCompletion *completion)
{
	return zkl_multi_send(&client->multis, client->zh, client->acl, ops, n_ops,
						  completion);
}
