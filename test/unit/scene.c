/*-------------------------------------------------------------------------
 *
 * scene.c
 *		Several sessions of the recipe layer on one fake ZooKeeper, and a referee
 *		that checks every grant.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scene.h"

#define MAX_HOLDS 64
#define MAX_ASKS 64
#define MAX_TOKENS 16

typedef struct LastToken
{
	char		name[32];
	int64_t		token;
	const ZklLock *lock;		/* that it was granted to; never dereferenced */
	const ZklSession *session;	/* the same */
} LastToken;

ZklSessionConfig scene_config;
Party		parties[MAX_PARTIES];
void		(*scene_before_end) (Party *party);
int			losses_reported;
int			revocations_reported;

static Hold holds[MAX_HOLDS];
static Ask	asks[MAX_ASKS];
static LastToken tokens[MAX_TOKENS];
static int	n_objections;
static char objection[512];

static void
object(const char *format,...)
{
	va_list		args;

	if (n_objections++ > 0)
		return;
	va_start(args, format);
	vsnprintf(objection, sizeof(objection), format, args);
	va_end(args);
}

int
objections(void)
{
	return n_objections;
}

const char *
first_objection(void)
{
	return objection;
}


/*
 * The referee
 */

static LastToken *
last_token(const Hold *hold)
{
	char		name[32];
	int			i = 0;

	/* A lock and a semaphore of one name are different. */
	snprintf(name, sizeof(name), "%s%.16s", hold->size > 0 ? "semaphore " : "", hold->name);
	while (i < MAX_TOKENS - 1 && tokens[i].name[0] && strcmp(tokens[i].name, name) != 0)
		i++;
	strcpy(tokens[i].name, name);
	return &tokens[i];
}

static void
check_token(const Hold *hold)
{
	LastToken  *last = last_token(hold);
	int64_t		token = zkl_lock_token(hold->lock);

	/* A session that has kept the lock has the token that it had. */
	if (last->lock != hold->lock && token <= last->token &&
		!(hold->party->keep_ms > 0 && hold->party->session == last->session && token == last->token))
		object("%s: token %" PRId64 " of %s after %" PRId64, hold->name, token,
			   hold->party->data, last->token);
	last->token = token;
	last->lock = hold->lock;
	last->session = hold->party->session;
}

static bool
counts(const Hold *hold)
{
	return hold->party && !fake_is_expired(hold->party->client) &&
		!zkl_lock_is_lost(hold->lock);
}

static void
check_exclusion(void)
{
	for (int i = 0; i < MAX_HOLDS; i++)
		for (int j = 0; j < i; j++)
			if (holds[i].party && holds[j].party &&
				holds[i].party != holds[j].party &&
				holds[i].size == 0 && holds[j].size == 0 &&
				strcmp(holds[i].name, holds[j].name) == 0 &&
				(holds[i].mode == ZKL_MODE_EXCLUSIVE ||
				 holds[j].mode == ZKL_MODE_EXCLUSIVE) &&
				counts(&holds[i]) && counts(&holds[j]))
				object("%s: held by %s (mode %d) and %s (mode %d)", holds[i].name,
					   holds[i].party->data, holds[i].mode,
					   holds[j].party->data, holds[j].mode);
}

static void
check_count(void)
{
	for (int i = 0; i < MAX_HOLDS; i++)
	{
		int			n = 0;

		for (int j = 0; j < MAX_HOLDS; j++)
			n += holds[i].party && holds[j].party && holds[i].size > 0 &&
				holds[j].size > 0 && strcmp(holds[i].name, holds[j].name) == 0 &&
				counts(&holds[j]);
		if (n > holds[i].size)
			object("%s: %d of %d permits are out", holds[i].name, n, holds[i].size);
	}
}

static void
note_grant(const Ask *ask, int i)
{
	Hold	   *hold = ask->size ? NULL : hold_of(ask->party, ask->names[i]);

	for (int h = 0; hold == NULL; h++)
		if (holds[h].party == NULL)
			hold = &holds[h];
	hold->party = ask->party;
	hold->lock = zkl_request_lock(ask->request, i);
	hold->mode = ask->items[i].mode;
	hold->size = ask->size;
	snprintf(hold->name, sizeof(hold->name), "%s", ask->names[i]);
	if (hold->mode == ZKL_MODE_EXCLUSIVE && counts(hold))
		check_token(hold);
}

static void
referee(void)
{
	for (int a = 0; a < MAX_ASKS; a++)
	{
		Ask		   *ask = &asks[a];

		if (ask->party == NULL || ask->status != ZKL_PENDING)
			continue;
		ask->status = zkl_request_status(ask->request);
		for (int i = 0; ask->status == ZKL_OK && i < ask->n; i++)
			note_grant(ask, i);
	}
	check_exclusion();
	check_count();
}


/*
 * Opening and closing sessions
 */

void
scene_open(Party *party)
{
	ZklSessionConfig config = scene_config;

	snprintf(party->data, sizeof(party->data), "party %d", (int) (party - parties));
	if (scene_config.server_tag == 0)
		config.server_tag = (uint32_t) (party - parties) + 1;
	party->session = zkl_session_open(&config);
	party->client = fake_last_client();
}

void
scene_join(Party *party)
{
	scene_open(party);
	fake_connect(party->client);
	fake_run_all();
	fake_count(party->client);
}

static void
on_loss_io(void)
{
	losses_reported++;
}

static void
on_revoke_io(void)
{
	revocations_reported++;
}

void
scene_begin(int n_parties)
{
	static const ZklSessionConfig defaults = {
		.connect_string = "192.0.2.1:2181",
		.root = "/zklock",
		.session_timeout_ms = SCENE_TIMEOUT_MS,
		.node_names = ZKL_NODE_NAMES_CURATOR,
		.max_nodes = 100,
		.on_loss_io = on_loss_io,
		.on_revoke_io = on_revoke_io,
	};

	fake_reset();
	memset(tokens, 0, sizeof(tokens));
	losses_reported = 0;
	revocations_reported = 0;
	n_objections = 0;
	objection[0] = '\0';
	scene_config = defaults;
	fake_after_step = referee;
	scene_before_end = NULL;
	for (int i = 0; i < n_parties; i++)
		scene_join(&parties[i]);
}

void
scene_without_referee(void)
{
	n_objections = 0;
}

void
scene_leave(Party *party)
{
	if (scene_before_end)
		scene_before_end(party);
	for (int a = 0; a < MAX_ASKS; a++)
		if (asks[a].party == party)
			asks[a].party = NULL;
	for (int h = 0; h < MAX_HOLDS; h++)
		if (holds[h].party == party)
			holds[h].party = NULL;
	zkl_session_close(party->session, 1000);
	memset(party, 0, sizeof(*party));
}

void
scene_end_at(const char *file, int line, const char *promise)
{
	if (promise || n_objections > 0)
		ok_at(file, line, n_objections == 0, "%s", promise ? promise : "the referee has no objection");
	if (n_objections > 0)
		diag("%d objections: %s", n_objections, objection);
	for (int i = 0; i < MAX_PARTIES; i++)
		if (parties[i].session)
			scene_leave(&parties[i]);

	/* Sessions that were not connected are closed once they connect. */
	for (int n = fake_n_clients(); n > 0; n--)
	{
		fake_release(fake_last_client());
		fake_connect(fake_last_client());
		fake_run_all();
	}
	fake_reset();
}


/*
 * What owners call
 */

static Ask *
unused_ask(void)
{
	for (int i = 0; i < MAX_ASKS; i++)
		if (asks[i].party == NULL)
			return &asks[i];
	abort();
}

static Ask *
asked(Ask *ask, Party *party, ZklRequest *request)
{
	ask->request = request;
	ask->status = ZKL_PENDING;
	ask->party = party;
	referee();
	return ask;
}

/* As the backend does: a keeper first takes what it keeps. */
static ZklRequest *
request_locks(Party *party, const Ask *ask, bool non_blocking)
{
	ZklRequest *request = NULL;

	if (ask->n == 1 && ask->items[0].may_be_kept && ask->items[0].held == NULL)
		request = zkl_kept_request(party->session, ask->names[0], ask->items[0].mode, non_blocking);
	if (request == NULL)
		request = zkl_lock_request(party->session, ask->items, ask->n, non_blocking,
								   party->data, (int) strlen(party->data));
	return request;
}

Ask *
ask_all(Party *party, int n, const char *const *names, const ZklMode *modes,
		bool non_blocking)
{
	Ask		   *ask = unused_ask();

	for (int i = 0; i < n; i++)
	{
		Hold	   *hold = hold_of(party, names[i]);

		snprintf(ask->names[i], sizeof(ask->names[i]), "%s", names[i]);
		ask->items[i].name = ask->names[i];
		ask->items[i].mode = modes[i];
		ask->items[i].held = hold ? hold->lock : NULL;
		ask->items[i].may_be_kept = party->keep_ms > 0;
	}
	ask->n = n;
	ask->size = 0;
	return asked(ask, party, request_locks(party, ask, non_blocking));
}

Ask *
ask_for(Party *party, const char *name, ZklMode mode)
{
	return ask_all(party, 1, &name, &mode, false);
}

Ask *
try_for(Party *party, const char *name, ZklMode mode)
{
	return ask_all(party, 1, &name, &mode, true);
}

Ask *
lock_now(Party *party, const char *name, ZklMode mode)
{
	Ask		   *ask = ask_for(party, name, mode);

	fake_run_all();
	return ask;
}

static Ask *
ask_for_permit(Party *party, const char *name, int size, bool non_blocking)
{
	Ask		   *ask = unused_ask();

	snprintf(ask->names[0], sizeof(ask->names[0]), "%s", name);
	ask->items[0].mode = ZKL_MODE_EXCLUSIVE;
	ask->items[0].held = NULL;
	ask->n = 1;
	ask->size = size;
	return asked(ask, party,
				 zkl_permit_request(party->session, name, size, non_blocking,
									party->data, (int) strlen(party->data)));
}

Ask *
ask_permit(Party *party, const char *name, int size)
{
	return ask_for_permit(party, name, size, false);
}

Ask *
try_permit(Party *party, const char *name, int size)
{
	return ask_for_permit(party, name, size, true);
}

Ask *
permit_now(Party *party, const char *name, int size)
{
	Ask		   *ask = ask_permit(party, name, size);

	fake_run_all();
	return ask;
}

void
forget(Ask *ask)
{
	if (scene_before_end)
		scene_before_end(ask->party);
	zkl_request_end(ask->request);
	ask->party = NULL;
}

void
give_up_all(Party *party)
{
	for (int a = 0; a < MAX_ASKS; a++)
		if (asks[a].party == party)
			forget(&asks[a]);
}

Ask *
pending_of(const Party *party)
{
	for (int a = 0; a < MAX_ASKS; a++)
		if (asks[a].party == party && asks[a].status == ZKL_PENDING)
			return &asks[a];
	return NULL;
}

const Hold *
next_hold(const Party *party, const Hold *after)
{
	for (const Hold *hold = after ? after + 1 : holds; hold < holds + MAX_HOLDS; hold++)
		if (hold->party == party)
			return hold;
	return NULL;
}

Hold *
hold_of(const Party *party, const char *name)
{
	for (int i = 0; i < MAX_HOLDS; i++)
		if (holds[i].party == party && holds[i].size == 0 &&
			strcmp(holds[i].name, name) == 0)
			return &holds[i];
	return NULL;
}

static bool
is_permit(const Hold *hold, const Party *party, const char *name)
{
	return hold->party == party && hold->size > 0 && strcmp(hold->name, name) == 0;
}

int
permits_of(const Party *party, const char *name)
{
	int			n = 0;

	for (int i = 0; i < MAX_HOLDS; i++)
		n += is_permit(&holds[i], party, name);
	return n;
}

int
lost_of(const Party *party)
{
	int			n = 0;

	for (int i = 0; i < MAX_HOLDS; i++)
		n += holds[i].party == party && zkl_lock_is_lost(holds[i].lock);
	return n;
}

ZklMode
mode_of(const Party *party, const char *name)
{
	Hold	   *hold = hold_of(party, name);

	return hold ? hold->mode : ZKL_MODE_NONE;
}

int64_t
token_of(const Party *party, const char *name)
{
	Hold	   *hold = hold_of(party, name);

	return hold ? zkl_lock_token(hold->lock) : -1;
}

static void
hold_reduce(Hold *hold, ZklMode mode)
{
	if (mode == ZKL_MODE_NONE && hold->party->keep_ms > 0 && hold->size == 0)
		zkl_lock_keep(hold->lock, hold->party->keep_ms);
	else
		zkl_lock_reduce(hold->lock, mode);
	hold->mode = mode;
	if (mode == ZKL_MODE_NONE)
		hold->party = NULL;
}

void
reduce(Party *party, const char *name, ZklMode mode)
{
	hold_reduce(hold_of(party, name), mode);
}

void
release_permit(Party *party, const char *name)
{
	for (int i = 0; i < MAX_HOLDS; i++)
		if (is_permit(&holds[i], party, name))
		{
			hold_reduce(&holds[i], ZKL_MODE_NONE);
			return;
		}
}

/* Does a pending request build on the hold?  Then the request must end first. */
static bool
built_on(const Hold *hold)
{
	Ask		   *ask = pending_of(hold->party);

	for (int i = 0; ask && i < ask->n; i++)
		if (ask->items[i].held == hold->lock)
			return true;
	return false;
}

void
release_all(Party *party)
{
	for (int i = 0; i < MAX_HOLDS; i++)
		if (holds[i].party == party && !built_on(&holds[i]))
			hold_reduce(&holds[i], ZKL_MODE_NONE);
}


/*
 * The nodes in the ensemble
 */

const char *
path_of(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", SCENE_LOCKS, name);
	return path;
}

const char *
pool_of(const char *name, const char *below)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s%s", SCENE_SEMAPHORES, name, below);
	return path;
}

static bool
is_owner(const Party *party, const FakeNode *node)
{
	return node->owner != 0 && (party == NULL || node->owner == fake_session_id(party->client));
}

int
nodes_of(const Party *party, const char *name)
{
	int			n = 0;

	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		n += is_owner(party, node) && (name == NULL || fake_tree_child(node->path, path_of(name)));
	return n;
}

const char *
node_below(const Party *party, const char *parent)
{
	static char path[256];

	path[0] = '\0';
	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		if (is_owner(party, node) && (parent == NULL || fake_tree_child(node->path, parent)))
			snprintf(path, sizeof(path), "%s", node->path);
	return path;
}

const char *
node_of(const Party *party, const char *name)
{
	return node_below(party, name ? path_of(name) : NULL);
}

void
delete_by_hand(const char *path)
{
	if (fake_tree_delete(path) != ZKL_RC_OK)
		ok(false, "another client deletes \"%s\"", path);
}

const char *
make_node(const char *path, const char *data, ZklCreateKind kind, int64_t session)
{
	static char made_path[512];
	char	   *made;
	int64_t		unused;

	fake_tree_create(path, data, (int) strlen(data), kind, session, &made, &unused);
	snprintf(made_path, sizeof(made_path), "%s", made ? made : "");
	free(made);
	return made_path;
}

const char *
foreign_node(const char *name, const char *child, int64_t session)
{
	char		path[512];

	make_node(path_of(name), "", ZKL_CREATE_CONTAINER, 0);
	snprintf(path, sizeof(path), "%s/%s", path_of(name), child);
	return make_node(path, "foreign", ZKL_CREATE_EPHEMERAL_SEQUENTIAL, session);
}

void
heal(void)
{
	for (int round = 0; round < 3; round++)
	{
		for (int i = 0; i < MAX_PARTIES; i++)
			if (parties[i].session)
			{
				fake_release(parties[i].client);
				fake_connect(parties[i].client);
			}
		fake_run_all();
		fake_advance(250);
		for (int i = 0; i < MAX_PARTIES; i++)
			if (parties[i].session)
			{
				fake_receive_timeout(parties[i].client);
				fake_lag(parties[i].client, false);
			}
		fake_run_all();
	}
}

void
scene_rejoin(Party *party)
{
	if (!fake_is_expired(party->client))
		fake_expire(party->client);
	scene_leave(party);
	scene_open(party);
	fake_connect(party->client);
}

/* Longest pause before a refused operation is sent again. */
#define LONGEST_PAUSE_MS 5000

/* Releases all holds repeatedly, until no session waits any more. */
static bool
comes_to_rest(void)
{
	for (int round = 0; round < 30; round++)
	{
		bool		waiting = false;

		heal();
		for (int i = 0; i < MAX_PARTIES; i++)
		{
			if (parties[i].session == NULL)
				continue;
			if (zkl_session_state(parties[i].session) == ZKL_SESSION_EXPIRED)
				scene_rejoin(&parties[i]);
			release_all(&parties[i]);
			zkl_session_leave_kept(parties[i].session);
			waiting = waiting || pending_of(&parties[i]);
		}
		if (!waiting)
		{
			heal();
			fake_advance(LONGEST_PAUSE_MS);
			heal();
			return true;
		}
	}
	return false;
}

/*
 * Upgraders that wait for each other's shared holds over two names are a deadlock
 * of the owners.  One of them gives up, as PostgreSQL's detector would ensure.
 */
bool
scene_settles(void)
{
	for (int i = 0; i < MAX_PARTIES; i++)
		if (comes_to_rest())
			return true;
		else if (parties[i].session)
			give_up_all(&parties[i]);
	return comes_to_rest();
}
