/*-------------------------------------------------------------------------
 *
 * victims.c
 *		Deadlocks in scenes: which sessions are victims, and whether that helps.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "victims.h"

void
begin_waiters(const char *servers, const char *steps)
{
	scene_begin((int) strlen(servers));
	waiters_begin(servers);
	play_begin();
	play_verbs = deadlock_verbs;
	play_act(steps, true);
}

bool
owner_goes_on(Party *party, int n, bool (*until) (Party *party))
{
	for (int i = 0; i < n; i++)
	{
		if (publish(party))
			return true;
		while (fake_step(party->client))
			;
		if (until && until(party))
			return false;
	}
	return false;
}

const char *
victims_are(void)
{
	static char text[MAX_PARTIES + 1];
	int			n = 0;

	for (int i = 0; i < MAX_PARTIES; i++)
		if (verdict_of(&parties[i])[0] != '\0')
			text[n++] = (char) ('A' + i);
	text[n] = '\0';
	return text;
}

static bool
any_is_deadlocked(void)
{
	for (int i = 0; i < MAX_PARTIES; i++)
		if (parties[i].session && is_truly_deadlocked(&parties[i]))
			return true;
	return false;
}

/* Promise 7.2: that long after deadlock_timeout, when the first waiters begin to search. */
#define PROMISED_MS 2000

/* Returns what is wrong, or NULL.  A victim is found in the first round, and is the only one in the second. */
static const char *
problem(const char *allowed)
{
	const char *victims;
	int64_t		from = fake_now();
	bool		is_late;

	publish_all();
	is_late = victims_are()[0] == '\0' || fake_now() - from > PROMISED_MS;
	publish_all();
	victims = victims_are();
	if (strcmp(allowed, "none") == 0)
		return victims[0] || any_is_deadlocked() ? "a deadlock" : NULL;
	if (is_late || strlen(victims) != 1 || strchr(allowed, victims[0]) == NULL)
		return is_late ? "none, or late" : victims;
	end_transaction(&parties[victims[0] - 'A']);
	fake_run_all();
	if (any_is_deadlocked())
		return "the deadlock goes on";
	return !scene_settles() ? "a session still waits" : reported_by(NULL) > 0 ? "a report is left" : NULL;
}

void
has_one_victim(const char *name, const char *allowed)
{
	const char *found = problem(allowed);

	if (!ok(found == NULL, "%s: victim %s", name, allowed))
		diag("found: %s", found);
	scene_end(NULL);
}

void
has_no_victim(const char *name)
{
	has_one_victim(name, "none");
}

void
ring(const Party *party)
{
	char		path[100];

	snprintf(path, sizeof(path), "/zklock/bells/%" PRIx64, (uint64_t) fake_session_id(party->client));
	fake_tree_set(path, "");
}


/*
 * Verbs
 */

static void
set_servers(const Step *step)
{
	waiters_begin(step->argument);
}

static void
wait_for_row(const Step *step)
{
	wait_locally(step->party, step->argument[0] ? &parties[step->argument[0] - 'A'] : NULL);
}

static void
publish_wait(const Step *step)
{
	publish_at_once(step->party);
}

static void
find_reports(const Step *step, char *found)
{
	sprintf(found, "%d", reported_by(step->party));
}

static void
find_victim(const Step *step, char *found)
{
	const char *wrong = problem(step->argument);

	strcpy(found, wrong ? wrong : step->argument);
}

const PlayVerb deadlock_verbs[] = {
	{"servers", .act = set_servers},
	{"row", .act = wait_for_row},
	{"publish", .act = publish_wait},
	{"reports", .find = find_reports},
	{"victim", .find = find_victim},
	{.word = NULL}
};
