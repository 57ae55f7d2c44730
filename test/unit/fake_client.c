/*-------------------------------------------------------------------------
 *
 * fake_client.c
 *		The client seam over a ZooKeeper in memory that fails on demand.
 *
 * Owns what happens to clients: requests in flight, answers under way, watches,
 * alarms and faults; fake_tree.c owns the znodes, fake_wire.c the memory of
 * requests and answers.  A loss of the connection is told as the real library
 * tells it: the event first, then the lost answers.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "fake_internal.h"

typedef struct Watch
{
	struct Watch *next;
	char	   *path;
	ZklClient  *client;
	bool		children;		/* else of the node itself */
	bool		due;			/* it has fired, and that was lost with the connection */
} Watch;

void		(*fake_after_step) (void);

ZklClient  *fake_clients;
int64_t		fake_now_ms = FAKE_FIRST_MS;
int			fake_breaks_per_1000;
unsigned	fake_breaks_seed;

static Watch *watches;

static const char *const fault_names[] = {
	"none", "drop", "apply and drop", "apply all and drop", "delay", "no auth",
	"other error", "credentials", "refuse", "throttle", "expire", "apply and expire", "forget",
};

const char *
fake_fault_name(FakeFault fault)
{
	return fault_names[fault];
}

static void
stepped(void)
{
	if (fake_after_step)
		fake_after_step();
}


/*
 * Watches
 */

static Watch *
watch_add(ZklClient *client, const char *path, bool children)
{
	Watch	   *watch;

	for (watch = watches; watch; watch = watch->next)
		if (watch->client == client && watch->children == children &&
			strcmp(watch->path, path) == 0)
			return watch;
	watch = calloc(1, sizeof(Watch));
	watch->path = strdup(path);
	watch->client = client;
	watch->children = children;
	watch->next = watches;
	watches = watch;
	return watch;
}

static void
watch_free(Watch **link)
{
	Watch	   *watch = *link;

	*link = watch->next;
	free(watch->path);
	free(watch);
}

/* One shot: the watches on this path become events. */
static void
fire_watches(const char *path, bool children)
{
	Watch	  **link = &watches;

	while (*link)
		if ((*link)->children == children && strcmp((*link)->path, path) == 0)
		{
			fake_wire_push_watch(&(*link)->client->deliveries, path, children);
			watch_free(link);
		}
		else
			link = &(*link)->next;
}

void
fake_fire_data_watches(const char *path)
{
	fire_watches(path, false);
}

void
fake_fire_child_watches(const char *path)
{
	fire_watches(path, true);
}

void
fake_forget_watches(const ZklClient *client)
{
	Watch	  **link = &watches;

	while (*link)
		if ((*link)->client == client)
			watch_free(link);
		else
			link = &(*link)->next;
}

/* On a new connection: what has gone since is told, the rest is set again. */
static void
restore_watches(ZklClient *client)
{
	Watch	  **link = &watches;

	while (*link)
		if ((*link)->client == client &&
			((*link)->due || fake_tree_find((*link)->path) == NULL))
		{
			fake_wire_push_watch(&client->deliveries, (*link)->path, (*link)->children);
			watch_free(link);
		}
		else
			link = &(*link)->next;
}

int
fake_watches(const ZklClient *client)
{
	int			n = 0;

	for (Watch *watch = watches; watch; watch = watch->next)
		n += watch->client == client;
	return n;
}


/*
 * The network
 */

/* Events that were under way and the watches behind them are lost together. */
static void
lose_deliveries(ZklClient *client, FakeDelivery **lost)
{
	FakeDelivery **link = &client->deliveries;

	while (*link)
	{
		FakeDelivery *d = *link;

		if (d->kind == DELIVERY_ANSWER && d->result.code != ZKL_RC_CONNECTION_LOSS)
		{
			*link = d->next;
			fake_wire_push_loss(lost, d->completion);
			fake_wire_free_delivery(d);
		}
		else if (d->kind == DELIVERY_WATCH)
		{
			watch_add(client, d->path, d->children)->due = d->children;
			*link = d->next;
			fake_wire_free_delivery(d);
		}
		else
			link = &d->next;
	}
}

static void
lose_requests(ZklClient *client, FakeDelivery **lost)
{
	while (client->requests)
	{
		FakeRequest *request = fake_wire_pop_request(&client->requests);

		fake_wire_push_loss(lost, request->completion);
		fake_wire_free_request(request);
	}
}

/* The connection goes; answers that are "lost" with it, and all requests in flight. */
static void
hang_up(ZklClient *client, FakeDelivery *lost)
{
	client->connected = false;
	client->held = false;
	client->forgot_at = 0;
	lose_requests(client, &lost);
	fake_wire_push_event(&client->deliveries, ZKL_EVENT_DISCONNECTED);
	fake_wire_append(&client->deliveries, lost);
}

static void
disconnect(ZklClient *client)
{
	FakeDelivery *lost = NULL;

	if (!client->connected)
		return;
	lose_deliveries(client, &lost);
	hang_up(client, lost);
}

static void
connect_client(ZklClient *client)
{
	if (client->connected || client->told_dead)
		return;
	if (client->dead)
	{
		FakeDelivery *lost = NULL;

		client->told_dead = true;
		lose_requests(client, &lost);
		fake_wire_push_event(&client->deliveries, ZKL_EVENT_EXPIRED);
		fake_wire_append(&client->deliveries, lost);
		fake_forget_watches(client);
		return;
	}
	client->connected = true;
	fake_wire_push_event(&client->deliveries, ZKL_EVENT_CONNECTED);
	restore_watches(client);
}

static void
expire(ZklClient *client)
{
	client->dead = true;
	fake_tree_end_session(client->session_id);
	disconnect(client);
}

/* The server ends the session and hangs up, after the answers it has given. */
static void
dismiss(ZklClient *client)
{
	client->dead = true;
	fake_tree_end_session(client->session_id);
	hang_up(client, NULL);
}

void
fake_connect(ZklClient *client)
{
	connect_client(client);
}

void
fake_disconnect(ZklClient *client)
{
	disconnect(client);
}

void
fake_expire(ZklClient *client)
{
	expire(client);
}

void
fake_fail_attempt(ZklClient *client)
{
	if (!client->connected)
		lose_requests(client, &client->deliveries);
}

bool
fake_is_connected(const ZklClient *client)
{
	return client->connected;
}

bool
fake_is_expired(const ZklClient *client)
{
	return client->dead;
}

int64_t
fake_session_id(const ZklClient *client)
{
	return client->session_id;
}


/*
 * The server
 */

/* Does what the request asks, unless "instead" says what to answer. */
static void
serve(ZklClient *client, FakeRequest *request, ZklResultCode instead)
{
	FakeDelivery *answer = fake_wire_answer(request->completion, instead);

	if (instead == ZKL_RC_OK)
	{
		fake_wire_serve(request, client->session_id, answer);
		if (request->watch && answer->result.code == ZKL_RC_OK)
			watch_add(client, request->path, request->kind == REQUEST_LIST);
	}
	fake_wire_append(&client->deliveries, answer);
	fake_wire_free_request(request);
}

static void
serve_all(ZklClient *client)
{
	while (client->requests)
		serve(client, fake_wire_pop_request(&client->requests), ZKL_RC_OK);
}

static void
serve_with_fault(ZklClient *client, FakeRequest *request, FakeFault fault)
{
	client->fault_happened = client->fault_happened || fault != FAULT_NONE;
	switch (fault)
	{
		case FAULT_NO_AUTH:
			serve(client, request, ZKL_RC_NO_AUTH);
			return;
		case FAULT_OTHER:
			serve(client, request, ZKL_RC_OTHER);
			return;
		case FAULT_AUTH:
			serve(client, request, ZKL_RC_AUTH_FAILED);
			dismiss(client);
			return;
		case FAULT_THROTTLE:
			serve(client, request, ZKL_RC_CONNECTION_LOSS);
			return;
		case FAULT_DROP:
		case FAULT_EXPIRE:
			fake_wire_push_front(&client->requests, request);
			break;
		default:
			serve(client, request, ZKL_RC_OK);
	}
	switch (fault)
	{
		case FAULT_DELAY:
			client->held = true;
			break;
		case FAULT_FORGET:
			client->forgot_at = client->submitted;
			break;
		case FAULT_APPLY_ALL_DROP:
			serve_all(client);
			/* FALLTHROUGH */
		case FAULT_DROP:
		case FAULT_APPLY_DROP:
			disconnect(client);
			break;
		case FAULT_EXPIRE:
		case FAULT_APPLY_EXPIRE:
			expire(client);
			break;
		default:
			break;
	}
}

bool
fake_apply_one(ZklClient *client)
{
	FakeRequest *request;
	FakeFault	fault = FAULT_NONE;

	if (!client->connected || client->requests == NULL)
		return false;
	request = fake_wire_pop_request(&client->requests);
	if (request->ordinal == client->fault_at)
		fault = client->fault;
	if (fake_breaks_per_1000 > rand_r(&fake_breaks_seed) % 1000)
		fault = rand_r(&fake_breaks_seed) % 2 ? FAULT_DROP : FAULT_APPLY_DROP;
	serve_with_fault(client, request, fault);
	return true;
}

bool
fake_apply(ZklClient *client)
{
	bool		applied = fake_apply_one(client);

	if (applied)
		stepped();
	return applied;
}


/*
 * Deliveries
 */

/*
 * Takes the next one; NULL if there is none or they are held up.  Answers that
 * the server forgot come free when something more was submitted.
 */
FakeDelivery *
fake_next_delivery(ZklClient *client)
{
	if (client->held)
		return NULL;
	if (client->forgot_at > 0 && client->submitted > client->forgot_at)
		client->forgot_at = 0;
	return client->forgot_at > 0 ? NULL : fake_wire_pop_delivery(&client->deliveries);
}

/* Calls back, without the fake's mutex. */
void
fake_call_back(ZklClient *client, FakeDelivery *d)
{
	ZklConnectionInfo info = {
		.session_id = client->session_id,
		.session_timeout_ms = client->session_timeout_ms,
		.server = "192.0.2.1:2181",
	};

	switch (d->kind)
	{
		case DELIVERY_ANSWER:
			d->completion->done_io(d->completion, &d->result);
			break;
		case DELIVERY_EVENT:
			client->events.connection_io(client->context, d->event, &info);
			break;
		case DELIVERY_WATCH:
			client->events.watch_io(client->context, d->path);
			break;
	}
	fake_wire_free_delivery(d);
}

bool
fake_deliver(ZklClient *client)
{
	FakeDelivery *d = fake_next_delivery(client);

	if (d == NULL)
		return false;
	fake_call_back(client, d);
	stepped();
	return true;
}

bool
fake_step(ZklClient *client)
{
	if (fake_deliver(client))
		return true;
	if (!fake_apply(client))
		return false;
	fake_deliver(client);
	return true;
}

void
fake_run_all(void)
{
	bool		progress = true;

	for (int turns = 0; progress && turns < 100000; turns++)
	{
		progress = false;
		for (ZklClient *client = fake_clients; client; client = client->next)
			progress = fake_step(client) || progress;
	}
	if (progress)
		abort();				/* they would go on for ever */
}

static ZklClient *
next_to_ring(int64_t until_ms)
{
	ZklClient  *first = NULL;

	for (ZklClient *client = fake_clients; client; client = client->next)
		if (client->alarm_ms && client->alarm_ms <= until_ms &&
			(first == NULL || client->alarm_ms < first->alarm_ms))
			first = client;
	return first;
}

void
fake_advance(int64_t ms)
{
	int64_t		until_ms = fake_now_ms + ms;
	ZklClient  *client;

	while ((client = next_to_ring(until_ms)) != NULL)
	{
		if (client->alarm_ms > fake_now_ms)
			fake_now_ms = client->alarm_ms;
		client->alarm_ms = 0;
		client->events.alarm_io(client->context);
		stepped();
		fake_run_all();
	}
	fake_now_ms = until_ms;
	stepped();
}

int64_t
fake_alarm(const ZklClient *client)
{
	return client->alarm_ms;
}


/*
 * Faults and records
 */

void
fake_count(ZklClient *client)
{
	client->submitted = 0;
	client->fault_at = 0;
	client->fault = FAULT_NONE;
	client->fault_happened = false;
	client->trace[0] = '\0';
}

int
fake_counted(const ZklClient *client)
{
	return client->submitted;
}

void
fake_fault(ZklClient *client, int k, FakeFault fault)
{
	client->fault_at = k;
	client->fault = fault;
}

bool
fake_fault_happened(const ZklClient *client)
{
	return client->fault_happened;
}

void
fake_release(ZklClient *client)
{
	client->held = false;
}

void
fake_receive_timeout(ZklClient *client)
{
	if (client->held || client->forgot_at > 0)
		disconnect(client);
}

const char *
fake_trace(const ZklClient *client)
{
	return client->trace;
}
