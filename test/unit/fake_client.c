/*-------------------------------------------------------------------------
 *
 * fake_client.c
 *		Implements the client interface on an in-memory ZooKeeper that fails on
 *		demand.
 *
 * Owns the state of the clients: pending requests, undelivered answers, timers and
 * faults.  fake_tree.c owns the znodes, fake_watches.c what each server has seen
 * of them, fake_wire.c the memory of requests and answers.  A connection loss is
 * reported as the real library reports it: first the event, then the lost answers.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "fake_internal.h"

void		(*fake_after_step) (void);

ZklClient  *fake_clients;
int64_t		fake_now_ms = FAKE_FIRST_MS;
int			fake_breaks_per_1000;
unsigned	fake_breaks_seed;

static const char *const fault_names[] = {
	"none", "drop", "apply and drop", "apply all and drop", "delay", "no auth",
	"other error", "credentials", "refuse", "throttle", "expire", "apply and expire", "forget",
	"apply and other error", "stale",
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
 * The network
 */

/* Loses undelivered answers and watch events. */
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
			fake_wire_push_loss(lost, d->call, d->result.n_ops);
			fake_wire_free_delivery(d);
		}
		else if (d->kind == DELIVERY_WATCH)
		{
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

		fake_wire_append(lost, fake_wire_answer(request, ZKL_RC_CONNECTION_LOSS));
		fake_wire_free_request(request);
	}
}

/* Breaks the connection: "lost" answers and all pending requests fail with it. */
static void
hang_up(ZklClient *client, FakeDelivery *lost)
{
	client->connected = false;
	client->held = false;
	client->forgot_at = 0;
	fake_forget_watches(client);
	lose_requests(client, &lost);
	fake_wire_push_event(&client->deliveries, ZKL_EVENT_DISCONNECTED);
	fake_wire_append(&client->deliveries, lost);
}

void
fake_disconnect(ZklClient *client)
{
	FakeDelivery *lost = NULL;

	if (!client->connected)
		return;
	lose_deliveries(client, &lost);
	hang_up(client, lost);
}

void
fake_connect(ZklClient *client)
{
	if (client->connected || client->reported_dead)
		return;
	if (client->dead)
	{
		FakeDelivery *lost = NULL;

		client->reported_dead = true;
		lose_requests(client, &lost);
		fake_wire_push_event(&client->deliveries, ZKL_EVENT_EXPIRED);
		fake_wire_append(&client->deliveries, lost);
		fake_forget_watches(client);
		return;
	}
	client->connected = true;
	fake_wire_push_event(&client->deliveries, ZKL_EVENT_CONNECTED);

	/* Starting a session is a transaction. */
	client->view = client->seen ? client->seen : fake_tree_zxid();
	client->seen = client->view;
	if (!client->lags)
		fake_catch_up_to(client, fake_tree_zxid());
}

void
fake_expire(ZklClient *client)
{
	client->dead = true;
	fake_tree_end_session(client->session_id);
	fake_disconnect(client);
}

/* The server ends the session and disconnects, after the answers already sent. */
static void
dismiss(ZklClient *client)
{
	client->dead = true;
	fake_tree_end_session(client->session_id);
	hang_up(client, NULL);
}

void
fake_expire_silently(ZklClient *client)
{
	client->held = true;
	client->dead = true;
	fake_tree_end_session(client->session_id);
}

void
fake_fail_sync(ZklClient *client, ZklResultCode code)
{
	client->sync_code = code;
}

int64_t
fake_last_write_ms(const ZklClient *client)
{
	return client->last_write_ms;
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

/* Executes the request, and catches the server up as far as it must be. */
static void
carry_out(ZklClient *client, const FakeRequest *request, FakeDelivery *answer)
{
	bool		is_write = fake_wire_is_write(request);

	fake_wire_serve(request, client->session_id, client->view, answer);
	if (is_write && request->submitted_ms > client->last_write_ms)
		client->last_write_ms = request->submitted_ms;
	if (is_write || request->kind == REQUEST_SYNC)
		fake_catch_up_to(client, fake_tree_zxid());
	if (request->watch && answer->result.code == ZKL_RC_OK)
		fake_watch_add(client, request->path, request->kind == REQUEST_LIST);
}

/* Executes the request, unless "instead" is the answer. */
static void
serve(ZklClient *client, FakeRequest *request, ZklResultCode instead)
{
	FakeDelivery *answer;

	if (request->kind == REQUEST_SYNC && instead == ZKL_RC_OK)
	{
		instead = client->sync_code;
		client->sync_code = ZKL_RC_OK;
	}
	answer = fake_wire_answer(request, instead);
	if (instead == ZKL_RC_OK)
		carry_out(client, request, answer);
	answer->zxid = client->view;
	fake_wire_append(&client->deliveries, answer);
	fake_wire_free_request(request);
}

/* Executes a write, but answers with an error. */
static void
serve_and_deny(ZklClient *client, FakeRequest *request)
{
	FakeDelivery *unsent = fake_wire_answer(request, ZKL_RC_OK);

	if (fake_wire_is_write(request))
		carry_out(client, request, unsent);
	fake_wire_free_delivery(unsent);
	serve(client, request, ZKL_RC_OTHER);
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
		case FAULT_APPLY_OTHER:
			serve_and_deny(client, request);
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
			fake_disconnect(client);
			break;
		case FAULT_STALE:
			client->lags = true;
			client->sync_code = ZKL_RC_OTHER;
			/* FALLTHROUGH */
		case FAULT_DROP:
		case FAULT_APPLY_DROP:
			fake_disconnect(client);
			break;
		case FAULT_EXPIRE:
		case FAULT_APPLY_EXPIRE:
			fake_expire(client);
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

	if (!client->connected || client->dead || client->requests == NULL)
		return false;
	request = fake_wire_pop_request(&client->requests);
	if (request->ordinal == client->fault_at)
		fault = client->fault;
	if (fake_breaks_per_1000 > rand_r(&fake_breaks_seed) % 1000)
		fault = rand_r(&fake_breaks_seed) % 2 ? FAULT_DROP : FAULT_APPLY_DROP;
	serve_with_fault(client, request, fault);
	return true;
}

int64_t
fake_oldest_ms(const ZklClient *client)
{
	return client->requests ? client->requests->submitted_ms : 0;
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
 * Takes the next delivery; NULL if there is none or they are held up.  Answers that
 * the server forgot become available after the next submission.
 */
FakeDelivery *
fake_next_delivery(ZklClient *client)
{
	FakeDelivery *d = NULL;

	if (client->held)
		return NULL;
	if (client->forgot_at > 0 && client->submitted > client->forgot_at)
		client->forgot_at = 0;
	if (client->forgot_at == 0)
		d = fake_wire_pop_delivery(&client->deliveries);
	if (d && d->zxid > client->seen)
		client->seen = d->zxid;
	return d;
}

/* Passes an answer, event or watch on, without the fake's mutex. */
void
fake_call_back(ZklClient *client, FakeDelivery *d)
{
	ZklConnectionInfo info = {
		.key.id = client->session_id,
		.session_timeout_ms = client->session_timeout_ms,
		.asked_ms = zkl_now_ms(),
		.server = "192.0.2.1:2181",
	};

	switch (d->kind)
	{
		case DELIVERY_ANSWER:
			client->events->answer_io(d->call, &d->result);
			break;
		case DELIVERY_EVENT:
			client->events->event_io(client->session, d->event, &info);
			break;
		case DELIVERY_WATCH:
			client->events->watch_io(client->session, d->path);
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
	client->is_calling = true;
	fake_call_back(client, d);
	fake_called_back(client);
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

	for (int last_grants = 0; progress && last_grants < 100000; last_grants++)
	{
		ZklClient  *next;

		progress = false;
		for (ZklClient *client = fake_clients; client; client = next)
		{
			next = client->next;
			progress = fake_step(client) || progress;
		}
	}
	if (progress)
		abort();				/* an endless loop */
}

static ZklClient *
next_to_ring(int64_t until_ms)
{
	ZklClient  *first = NULL;

	for (ZklClient *client = fake_clients; client; client = client->next)
		if (client->timer_ms && client->timer_ms <= until_ms &&
			(first == NULL || client->timer_ms < first->timer_ms))
			first = client;
	return first;
}

bool
fake_ring(ZklClient *client)
{
	if (client->timer_ms == 0 || client->timer_ms > fake_now_ms)
		return false;
	client->timer_ms = 0;
	client->is_calling = true;
	client->events->timer_io(client->session);
	fake_called_back(client);
	stepped();
	return true;
}

void
fake_advance(int64_t ms)
{
	int64_t		until_ms = fake_now_ms + ms;
	ZklClient  *client;

	while ((client = next_to_ring(until_ms)) != NULL)
	{
		if (client->timer_ms > fake_now_ms)
			fake_now_ms = client->timer_ms;
		(void) fake_ring(client);
		fake_run_all();
	}
	fake_now_ms = until_ms;
	stepped();
}

int64_t
fake_now(void)
{
	return fake_now_ms;
}

void
fake_stall(int64_t ms)
{
	fake_now_ms += ms;
}

int64_t
fake_timer(const ZklClient *client)
{
	return client->timer_ms;
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
	if (client->dead && client->connected)
		hang_up(client, NULL);
}

void
fake_grant_timeout(ZklClient *client, int timeout_ms)
{
	client->session_timeout_ms = timeout_ms;
}

void
fake_receive_timeout(ZklClient *client)
{
	if (client->held || client->forgot_at > 0)
		fake_disconnect(client);
}

const char *
fake_trace(const ZklClient *client)
{
	return client->trace;
}

int
fake_proofs(const ZklClient *client)
{
	return client->proofs;
}

int
fake_drops(const ZklClient *client)
{
	return client->drops;
}

int
fake_n_traced(const ZklClient *client, char letter)
{
	int			n = 0;

	for (const char *c = client->trace; *c; c++)
		n += *c == letter;
	return n;
}
