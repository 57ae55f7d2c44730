/*-------------------------------------------------------------------------
 *
 * play.c
 *		Scenes written as texts.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "play.h"

#define X ZKL_MODE_EXCLUSIVE
#define S ZKL_MODE_SHARED
#define NONE ZKL_MODE_NONE

static const PlayVerb none[] = {{.word = NULL}};

const PlayVerb *play_verbs = none;

static Ask *asked[MAX_PARTIES];
static FakeFault next_fault[MAX_PARTIES];
static int	next_fault_at[MAX_PARTIES];

Ask *
play_asked(const Party *party)
{
	return asked[party - parties];
}

int64_t		play_noted_token;

void
play_begin(void)
{
	play_noted_token = 0;
	memset(asked, 0, sizeof(asked));
	memset(next_fault, 0, sizeof(next_fault));
}


/*
 * Actions
 */

static void
give_up(const Step *step)
{
	Ask		  **ask = &asked[step->party - parties];

	if (*ask)
		forget(*ask);
	*ask = NULL;
}

static void
request(const Step *step)
{
	char		names[MAX_ITEMS][2] = {{0}};
	const char *wanted[MAX_ITEMS];
	ZklMode		modes[MAX_ITEMS];
	int			n = (int) strlen(step->names);

	for (int i = 0; i < n; i++)
	{
		names[i][0] = step->names[i];
		wanted[i] = names[i];
		modes[i] = step->verb->mode;
	}
	give_up(step);
	asked[step->party - parties] = ask_all(step->party, n, wanted, modes, step->verb->non_blocking);
}

/* "s3": a permit of "s", whose capacity is 3. */
static void
request_permit(const Step *step)
{
	const char	name[] = {step->names[0], '\0'};
	int			size = step->names[1] ? step->names[1] - '0' : PLAY_SIZE;

	give_up(step);
	asked[step->party - parties] = step->verb->non_blocking ?
		try_permit(step->party, name, size) : ask_permit(step->party, name, size);
}

static void
give_back(const Step *step)
{
	release_permit(step->party, step->names);
}

static void
reduce_locks(const Step *step)
{
	for (const char *c = step->names; *c; c++)
	{
		const char	name[] = {*c, '\0'};

		if (mode_of(step->party, name) > step->verb->mode)
			reduce(step->party, name, step->verb->mode);
	}
}

static void
release(const Step *step)
{
	if (step->argument[0])
	{
		reduce_locks(step);
		return;
	}
	zkl_releases_begin(step->party->session);
	release_all(step->party);
	zkl_releases_end(step->party->session);
}

static void
leave(const Step *step)
{
	give_up(step);
	release(step);
}

static void
confirm(const Step *step)
{
	zkl_session_confirm(step->party->session, strcmp(step->argument, "fresh") == 0);
}

/* The party's session ends, and another one begins. */
static void
join(const Step *step)
{
	ZklSessionConfig saved = scene_config;
	const char *value = strchr(step->argument, '=') + 1;

	if (step->argument[0] == 't')
		scene_config.server_tag = (uint32_t) strtoul(value, NULL, 10);
	else if (strncmp(step->argument, "names", 5) == 0)
		scene_config.node_names = strcmp(value, "kazoo") == 0 ? ZKL_NODE_NAMES_KAZOO : ZKL_NODE_NAMES_CURATOR_MUTEX;
	else
		scene_config.max_nodes = atoi(value);
	scene_leave(step->party);
	scene_join(step->party);
	scene_config = saved;
	asked[step->party - parties] = NULL;
}

static void
note_token(const Step *step)
{
	play_noted_token = token_of(step->party, "a");
}

static void
close_session(const Step *step)
{
	scene_leave(step->party);
}

static void
disconnect(const Step *step)
{
	fake_disconnect(step->party->client);
}

static void
connect(const Step *step)
{
	fake_release(step->party->client);
	fake_connect(step->party->client);
}

static void
expire(const Step *step)
{
	fake_expire(step->party->client);
}

/* The party keeps what it releases from now on, for so many milliseconds. */
static void
keep(const Step *step)
{
	step->party->keep_ms = step->argument[0] ? atoi(step->argument) : PLAY_KEEP_MS;
}

static void
look_again(const Step *step)
{
	zkl_request_look_again(asked[step->party - parties]->request);
}

static void
leave_kept(const Step *step)
{
	zkl_session_leave_kept(step->party->session);
}

/* The argument is the name of a fault, with dashes for blanks. */
static void
plan_fault(const Step *step)
{
	FakeFault  *fault = &next_fault[step->party - parties];
	char		name[64];
	char	   *at;

	strcpy(name, step->argument);
	at = strchr(name, '@');
	if (at)
		*at = '\0';
	next_fault_at[step->party - parties] = at ? atoi(at + 1) : 1;
	for (char *c = name; *c; c++)
		if (*c == '-')
			*c = ' ';
	for (*fault = N_FAULTS - 1; *fault > FAULT_NONE; --*fault)
		if (strcmp(fake_fault_name(*fault), name) == 0)
			return;
	ok(false, "\"%s\" is a fault", name);
}

/* Time passes; the argument is in milliseconds. */
static void
pass(const Step *step)
{
	fake_advance(atoi(step->argument));
}

static void
stall(const Step *step)
{
	fake_stall(atoi(step->argument));
}

static void
delete_node(const Step *step)
{
	delete_by_hand(node_of(step->party, step->names));
}

static void
revoke(const Step *step)
{
	fake_tree_set(node_of(step->party, step->names), "__REVOKE__");
}

static void
write_data(const Step *step)
{
	fake_tree_set(node_of(step->party, "a"), step->argument);
}

static void
create_foreign(const Step *step)
{
	const char *name = "_c_11111111-2222-4333-8444-5555f5555555-__WRIT__";

	if (strcmp(step->argument, "bit") == 0)
		name = "_c_11111111-2222-3333-4444-555585555555-__WRIT__";
	else if (strcmp(step->argument, "go") == 0)
		name = "_c_11111111222233334444555585555555-lock-";
	foreign_node("a", name, fake_session_id(step->party->client));
}

/* From now on; without an argument no more. */
static void
deny(const Step *step)
{
	static char path[64];
	const char **quirk = strcmp(step->word, "deny") == 0 ? &fake_quirks.deny
		: strcmp(step->word, "denyread") == 0 ? &fake_quirks.deny_read : &fake_quirks.deny_exactly;

	strcpy(path, step->argument);
	*quirk = path[0] ? path : NULL;
}

static void
reap(const Step *step)
{
	(void) step;
	fake_tree_reap();
}

/* The next node below the lock's znode gets this number. */
static void
set_number(const Step *step)
{
	const char *name = strcmp(step->names, step->argument) == 0 ? "a" : step->names;

	fake_tree_find(path_of(name))->counter = atoi(step->argument);
}

static void
run_until(const Step *step)
{
	while (fake_n_traced(step->party->client, step->argument[0]) == 0 && fake_step(step->party->client))
		;
	while (fake_apply(step->party->client))
		;
}

static void
apply(const Step *step)
{
	fake_apply(step->party->client);
}

static void
deliver(const Step *step)
{
	fake_deliver(step->party->client);
}

static void
deliver_all(const Step *step)
{
	while (fake_deliver(step->party->client))
		;
}

static void
ring_timer(const Step *step)
{
	(void) fake_ring(step->party->client);
}

static void
lag(const Step *step)
{
	fake_lag(step->party->client, true);
}

static void
catch_up(const Step *step)
{
	fake_catch_up(step->party->client, atoi(step->argument));
}


static const PlayVerb actions[] = {
	{"lock", .act = request, .mode = X},
	{"share", .act = request, .mode = S},
	{"try", .act = request, .mode = X, .non_blocking = true},
	{"tryshare", .act = request, .mode = S, .non_blocking = true},
	{"permit", .act = request_permit, .mode = X},
	{"trypermit", .act = request_permit, .mode = X, .non_blocking = true},
	{"giveback", .act = give_back},
	{"giveup", .act = give_up},
	{"downgrade", .act = reduce_locks, .mode = S},
	{"release", .act = release},
	{"leave", .act = leave},
	{"confirm", .act = confirm},
	{"join", .act = join},
	{"note", .act = note_token},
	{"close", .act = close_session},
	{"disconnect", .act = disconnect},
	{"connect", .act = connect},
	{"expire", .act = expire},
	{"keep", .act = keep},
	{"leavekept", .act = leave_kept},
	{"again", .act = look_again},
	{"fault", .act = plan_fault},
	{"pass", .act = pass},
	{"stall", .act = stall},
	{"delete", .act = delete_node},
	{"apply", .act = apply},
	{"deliver", .act = deliver},
	{"deliverall", .act = deliver_all},
	{"ring", .act = ring_timer},
	{"lag", .act = lag},
	{"catchup", .act = catch_up},
	{"revoke", .act = revoke},
	{"write", .act = write_data},
	{"foreign", .act = create_foreign},
	{"deny", .act = deny},
	{"denyread", .act = deny},
	{"denyexactly", .act = deny},
	{"reap", .act = reap},
	{"number", .act = set_number},
	{"until", .act = run_until},
	{.word = NULL}
};


/*
 * Texts
 */

static void
act(const Step *step, bool run)
{
	FakeFault  *fault = step->party ? &next_fault[step->party - parties] : NULL;

	if (run && step->party)
	{
		fake_count(step->party->client);
		fake_fault(step->party->client, *fault ? next_fault_at[step->party - parties] : 0, *fault);
		*fault = FAULT_NONE;
	}
	step->verb->act(step);
	if (run && !step->at_once)
		fake_run_all();
}

static bool
check(const Step *step)
{
	char		found[256] = "no such verb";

	if (step->verb)
		step->verb->find(step, found);
	if (strcmp(found, step->argument) == 0)
		return true;
	diag("found \"%s\", not \"%s\"", found, step->argument);
	return false;
}

/* Prints the text of a play with a mark behind a step, which ends before "rest". */
static void
mark_step(const char *steps, const char *rest)
{
	int			length = (int) (rest - steps);

	if (*rest != '\0')
		length--;
	diag("%.*s <-- HERE%s", length, steps, steps + length);
}

static const PlayVerb *
verb_of(const PlayVerb *list, const char *word)
{
	while (list->word && strcmp(list->word, word) != 0)
		list++;
	return list->word ? list : NULL;
}

/* Reads the next step; returns the rest of the text, or NULL at its end. */
static const char *
next_step(const char *text, Step *step)
{
	char		who[8] = "";
	char		last[64] = "";

	if (text == NULL || *text == '\0')
		return NULL;
	memset(step, 0, sizeof(*step));
	sscanf(text, " %7s %15[^ ,] %63[^ ,] %63[^ ,]", who, step->word, step->argument, last);
	step->at_once = step->word[0] && step->word[strlen(step->word) - 1] == '!';
	if (step->at_once)
		step->word[strlen(step->word) - 1] = '\0';
	step->party = strcmp(who, "all") == 0 ? NULL : &parties[who[0] - 'A'];
	step->verb = verb_of(actions, step->word);
	if (step->verb == NULL)
		step->verb = verb_of(play_checks, step->word);
	if (step->verb == NULL)
		step->verb = verb_of(play_verbs, step->word);
	strcpy(step->names, last[0] ? last : "a");
	if (step->verb && step->verb->act && step->argument[0] && !last[0])
		strcpy(step->names, step->argument);
	text = strchr(text, ',');
	return text ? text + 1 : "";
}

void
play_act(const char *steps, bool run)
{
	Step		step;

	while ((steps = next_step(steps, &step)) != NULL)
		act(&step, run);
}

void
play_all(const Play *plays, int n)
{
	for (int i = 0; i < n; i++)
	{
		const char *rest = plays[i].steps;
		bool		right = true;
		Step		step;

		if (!is_wanted(plays[i].promise))
			continue;
		testing(plays[i].file, plays[i].line, plays[i].promise);
		scene_begin(PLAY_PARTIES);
		play_begin();
		while ((rest = next_step(rest, &step)) != NULL)
		{
			int			objected = objections();
			bool		good = true;

			if (step.verb && step.verb->act)
				act(&step, true);
			else
				good = check(&step);
			if (!good || objections() > objected)
				mark_step(plays[i].steps, rest);
			right = right && good;
		}
		ok_at(plays[i].file, plays[i].line, right && objections() == 0, "%s", plays[i].promise);
		scene_end(NULL);
	}
}
