/*-------------------------------------------------------------------------
 *
 * fake_seam.c
 *		The functions of client.h, and the threads of the threaded mode.
 *
 * Owns the list of clients and the mutex of the threaded mode; fake_client.c
 * decides what happens to a submission.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fake_internal.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool threaded;
static int64_t last_session_id = INT64_C(0x100000000000000);


/*
 * Threaded mode
 */

void
fake_go_threaded(int breaks)
{
	threaded = true;
	fake_breaks_per_1000 = breaks;
	fake_breaks_seed = 1;
}

static void *
client_main_io(void *arg)
{
	ZklClient  *client = arg;

	pthread_mutex_lock(&mutex);
	while (!client->stopping)
	{
		FakeDelivery *d = fake_next_delivery(client);

		if (d)
		{
			pthread_mutex_unlock(&mutex);
			fake_call_back(client, d);
			pthread_mutex_lock(&mutex);
		}
		else if (fake_apply_one(client))
			pthread_cond_broadcast(&changed);
		else if (!client->connected)
			fake_connect(client);
		else
			pthread_cond_wait(&changed, &mutex);
	}
	pthread_mutex_unlock(&mutex);
	return NULL;
}

/* The client's own thread does the work. */
static void
pass(ZklClient *client, ZklIoThreadWatch *watch)
{
	if (!client->has_thread)
		client->has_thread = pthread_create(&client->thread, NULL, client_main_io, client) == 0;
	watch->until_ms = client->has_thread ? ZKL_IO_THREAD_NEVER : zkl_io_thread_now() + 1;
}

static void
client_unlink(ZklClient *client)
{
	ZklClient **link = &fake_clients;

	while (*link != client)
		link = &(*link)->next;
	*link = client->next;
	fake_forget_watches(client);
	if (client->connected || threaded)
		fake_tree_end_session(client->session_id);
}

static void
client_close(ZklClient *client)
{
	pthread_mutex_lock(&mutex);
	client->stopping = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
	if (client->has_thread)
		pthread_join(client->thread, NULL);
	pthread_mutex_lock(&mutex);
	client_unlink(client);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
}

static void
client_free(ZklClient *client)
{
	while (client->requests)
		fake_wire_free_request(fake_wire_pop_request(&client->requests));
	while (client->deliveries)
		fake_wire_free_delivery(fake_wire_pop_delivery(&client->deliveries));
	free(client);
}

static void *
io_thread_main_io(void *arg)
{
	ZklClient  *client = arg;
	ZklIoThreadWatch watch = {.fd = -1};
	ZklIoThreadStep step;

	while ((step = zkl_io_thread_next(client->io_thread, &watch)) != ZKL_IO_THREAD_STOP)
		if (step == ZKL_IO_THREAD_TIMER)
			client->events->timer_io(client->session);
		else
			pass(client, &watch);
	client_close(client);
	if (zkl_io_thread_stopped(client->io_thread))
	{
		client->events->closed_io(client->session);
		client_free(client);
	}
	return NULL;
}


/*
 * The client interface
 */

void
fake_reset(void)
{
	if (fake_clients)
		abort();
	fake_tree_reset();
	fake_tree_changed = fake_list_servers;
	fake_after_step = NULL;
	fake_now_ms = FAKE_FIRST_MS;
	threaded = false;
	fake_breaks_per_1000 = 0;
}

int
fake_n_clients(void)
{
	int			n = 0;

	for (ZklClient *client = fake_clients; client; client = client->next)
		n++;
	return n;
}

ZklClient *
fake_last_client(void)
{
	return fake_clients;
}

ZklClient *
zkl_client_open(const ZklSessionConfig *config, int wait_fd, const ZklClientEvents *events,
				ZklSession *session)
{
	ZklClient  *client = calloc(1, sizeof(ZklClient));

	(void) wait_fd;
	client->events = events;
	client->session = session;
	client->session_timeout_ms = config->session_timeout_ms;
	pthread_mutex_lock(&mutex);
	client->session_id = ++last_session_id;
	client->next = fake_clients;
	fake_clients = client;
	pthread_mutex_unlock(&mutex);
	if (threaded)
		zkl_io_thread_start(&client->io_thread, io_thread_main_io, client);
	return client;
}

bool
zkl_client_close(ZklClient *client, int timeout_ms)
{
	if (threaded)
	{
		bool		stopped = zkl_io_thread_stop(client->io_thread, timeout_ms);

		if (stopped)
			client_free(client);
		return stopped;
	}
	if (client->is_calling && timeout_ms == 0)
		client->closes_late = true;
	if (client->hangs || client->is_calling)
		return false;
	/* The server executes the requests already sent; its answers are not read. */
	while (fake_apply_one(client))
		;
	client_unlink(client);
	client_free(client);
	return true;
}

void
zkl_client_end(ZklClient *client)
{
	if (threaded)
		zkl_io_thread_end(client->io_thread);
	else
		client->ends = true;
}

void
fake_called_back(ZklClient *client)
{
	client->is_calling = false;
	if (client->closes_late)
		fake_close_late(client);
	else if (client->ends && client->connected)
	{
		fake_tree_end_session(client->session_id);
		client->connected = false;
		client->reported_dead = true;
	}
}

void
fake_close_hangs(ZklClient *client)
{
	client->hangs = true;
}

void
fake_close_late(ZklClient *client)
{
	client_unlink(client);
	client->events->closed_io(client->session);
	client_free(client);
}

/* Sends nothing: submissions are sent at once, and answers call back by themselves. */
void
zkl_client_flush(ZklClient *client)
{
	(void) client;
}

void
zkl_client_waits(ZklClient *client, bool waits)
{
	(void) client;
	(void) waits;
}

void
zkl_client_exchange(ZklClient *client)
{
	(void) client;
}

void
zkl_client_drop(ZklClient *client)
{
	pthread_mutex_lock(&mutex);
	client->drops++;
	fake_disconnect(client);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
}

int64_t
zkl_now_ms(void)
{
	return threaded ? zkl_io_thread_now() : fake_now_ms;
}

void
zkl_client_set_timer(ZklClient *client, int64_t at_ms)
{
	if (threaded)
		zkl_io_thread_set_timer(client->io_thread, at_ms);
	else
		client->timer_ms = at_ms;
}

static bool
submit(ZklClient *client, char letter, FakeRequest *request)
{
	bool		sent = false;
	int			n;

	pthread_mutex_lock(&mutex);
	if (letter == 'p')
	{
		client->proofs++;
		client->forgot_at = 0;
	}
	else if ((n = client->submitted++) < FAKE_TRACE_SIZE - 1)
	{
		client->trace[n] = letter;
		client->trace[n + 1] = '\0';
	}
	request->ordinal = letter == 'p' ? 0 : client->submitted;
	request->submitted_ms = fake_now_ms;
	if (client->fault == FAULT_REFUSE && client->fault_at == request->ordinal)
		client->fault_happened = true;
	else if (!client->reported_dead)
		sent = true;
	if (sent)
		fake_wire_push_request(&client->requests, request);
	else
		fake_wire_free_request(request);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
	return sent;
}

/* Returns the kind of the request, and its letter in the trace.  There are no ACLs here. */
static FakeRequestKind
kind_of(ZklRequestForm form, const ZklOp *op, char *letter)
{
	static const struct
	{
		FakeRequestKind kind;
		char		letter;
		char		letter_watch;
	}			kinds[] = {
		[ZKL_OP_CREATE] = {REQUEST_CREATE, 'c', 'c'},
		[ZKL_OP_DELETE] = {REQUEST_DELETE, 'd', 'd'},
		[ZKL_OP_SET] = {REQUEST_SET, 'u', 'u'},
		[ZKL_OP_GET] = {REQUEST_GET, 'g', 'w'},
		[ZKL_OP_STAT] = {REQUEST_STAT, 'e', 'e'},
		[ZKL_OP_GET_ACL] = {REQUEST_SYNC, 'a', 'a'},
		[ZKL_OP_LIST] = {REQUEST_LIST, 'l', 'L'},
		[ZKL_OP_SYNC] = {REQUEST_SYNC, 's', 's'},
	};

	if (form != ZKL_SINGLE)
	{
		*letter = 'm';
		return REQUEST_MULTI;
	}
	*letter = op->watch ? kinds[op->kind].letter_watch : kinds[op->kind].letter;
	return kinds[op->kind].kind;
}

/* Is it a proof: a multi that only checks the root?  The root has one component. */
static bool
is_proof(ZklRequestForm form, const ZklOp *ops, int n_ops)
{
	return form == ZKL_MULTI && n_ops == 1 && ops->kind == ZKL_OP_CHECK &&
		strchr(ops->path + 1, '/') == NULL;
}

bool
zkl_client_submit(ZklClient *client, ZklRequestForm form, const ZklOp *ops, int n_ops,
				  ZklCall *call)
{
	char		letter;
	FakeRequestKind kind = kind_of(form, ops, &letter);
	FakeRequest *request = fake_wire_request(kind, ops, n_ops, call);

	if (request == NULL)
		return false;
	if (is_proof(form, ops, n_ops))
		letter = 'p';
	request->watch = form == ZKL_SINGLE && ops->watch;
	request->version = ops->version;
	return submit(client, letter, request);
}
