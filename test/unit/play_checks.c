/*-------------------------------------------------------------------------
 *
 * play_checks.c
 *		The checks of scenes written as texts.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "play.h"

static void
find_modes(const Step *step, char *found)
{
	for (const char *c = step->names; *c; c++)
	{
		const char	name[] = {*c, '\0'};

		*found = "0SX"[mode_of(step->party, name)];
		if (hold_of(step->party, name) && zkl_lock_is_lost(hold_of(step->party, name)->lock))
			*found += 'a' - 'A';
		found++;
	}
	*found = '\0';
}

static const char *const statuses[] = {
	[ZKL_OK] = "ok",
	[ZKL_PENDING] = "pending",
	[ZKL_BUSY] = "busy",
	[ZKL_DEADLOCK] = "deadlock",
	[ZKL_SESSION_LOST] = "lost",
	[ZKL_LOCK_LOST] = "lock-lost",
	[ZKL_AUTH_FAILED] = "refused",
	[ZKL_NO_AUTH] = "no-auth",
	[ZKL_TOO_MANY] = "too-many",
	[ZKL_SEQUENCE_USED_UP] = "used-up",
	[ZKL_NOT_SUPPORTED] = "not-supported",
	[ZKL_OTHER_CAPACITY] = "other-capacity",
	[ZKL_LOCAL_SESSION] = "local",
	[ZKL_SERVER_ERROR] = "error",
};

static void
find_status(const Step *step, char *found)
{
	Ask		   *ask = play_asked(step->party);

	strcpy(found, statuses[ask->status]);
}

/* Has the request asked the owner of the node that it waits for? */
static void
find_asks(const Step *step, char *found)
{
	ZklRequestInfo info;

	zkl_request_info(play_asked(step->party)->request, &info);
	strcpy(found, !info.blocked ? "-" : info.has_asked ? "yes" : "no");
}

static void
find_confirmed(const Step *step, char *found)
{
	strcpy(found, statuses[zkl_session_confirmed(step->party->session)]);
}

static void
find_state(const Step *step, char *found)
{
	static const char *const states[] = {
		"connecting", "connected", "suspended", "expired", "refused"
	};

	strcpy(found, states[zkl_session_state(step->party->session)]);
}

static void
find_lease(const Step *step, char *found)
{
	sprintf(found, "%d", (int) zkl_session_info(step->party->session).lease_ms);
}

/* What the tokens of all these locks are. */
static void
find_token(const Step *step, char *found)
{
	strcpy(found, "czxid");
	for (const char *c = step->names; *c; c++)
	{
		const char	name[] = {*c, '\0'};
		int64_t		token = token_of(step->party, name);

		if (token != fake_tree_find(node_of(step->party, name))->czxid)
			strcpy(found, token == play_noted_token ? "noted" : "another");
	}
}

/* Whom the request waits for, and because of which name. */
static void
find_blocker(const Step *step, char *found)
{
	const Ask  *ask = play_asked(step->party);
	ZklRequestInfo info;

	zkl_request_info(ask->request, &info);
	if (info.blocked)
		sprintf(found, "%s/%s", info.culprit >= 0 ? ask->names[info.culprit] : "", info.blocker);
	else
		strcpy(found, info.was_blocked ? "none/any-more" : "none");
	for (; *found; found++)
		if (*found == ' ')
			*found = '-';
}

static void
find_nodes(const Step *step, char *found)
{
	sprintf(found, "%d", nodes_of(step->party, NULL));
}

static void
find_named(const Step *step, char *found)
{
	const char *path = node_of(step->party, "a");

	strcpy(found, strstr(path, step->argument) ? step->argument : path);
}

static void
find_watches(const Step *step, char *found)
{
	sprintf(found, "%d", fake_watches(step->party->client));
}

static void
find_trace(const Step *step, char *found)
{
	strcpy(found, fake_trace(step->party->client));
}

static void
find_lost(const Step *step, char *found)
{
	sprintf(found, "%d", lost_of(step->party));
}

static void
find_proofs(const Step *step, char *found)
{
	sprintf(found, "%d", fake_proofs(step->party->client));
}

static void
find_drops(const Step *step, char *found)
{
	sprintf(found, "%d", fake_drops(step->party->client));
}

static void
find_trust(const Step *step, char *found)
{
	int64_t		deadline = zkl_session_deadline_io(step->party->session);

	sprintf(found, "%d", (int) (deadline - fake_now()));
	if (deadline <= 0)
		strcpy(found, deadline == 0 ? "none" : "passed");
}

static void
find_last_write(const Step *step, char *found)
{
	sprintf(found, "%d", (int) (fake_now() - fake_last_write_ms(step->party->client)));
}

static void
find_intact(const Step *step, char *found)
{
	strcpy(found, zkl_session_is_intact(step->party->session) ? "yes" : "no");
}

static void
find_losses(const Step *step, char *found)
{
	(void) step;
	sprintf(found, "%d", losses_reported);
}

static void
find_revocations(const Step *step, char *found)
{
	sprintf(found, "%d", step->party ? zkl_lock_revocations(hold_of(step->party, step->names)->lock)
			: revocations_reported);
}

/* The data of the party's node, with dashes for blanks. */
static void
find_data(const Step *step, char *found)
{
	const FakeNode *node = fake_tree_find(node_of(step->party, step->names));

	sprintf(found, "%.*s", node ? node->data_len : 0, node ? node->data : "");
	for (; *found; found++)
		if (*found == ' ')
			*found = '-';
}

static void
find_permits(const Step *step, char *found)
{
	int			n = 0;

	for (int i = 0; i < PLAY_PARTIES; i++)
		n += step->party == NULL || step->party == &parties[i] ? permits_of(&parties[i], step->names) : 0;
	sprintf(found, "%d", n);
}

/* The last word of the data of the party's node of "a". */
static void
find_word(const Step *step, char *found)
{
	const FakeNode *node = fake_tree_find(node_of(step->party, "a"));
	bool		has_word = node && node->data_len > 9 &&
		memcmp(node->data + node->data_len - 9, " keep=", 6) == 0;

	snprintf(found, 8, "%.3s", has_word ? node->data + node->data_len - 3 : node ? "no" : "-");
}

const PlayVerb play_checks[] = {
	{"has", .find = find_modes},
	{"is", .find = find_status},
	{"lease", .find = find_lease},
	{"token", .find = find_token},
	{"behind", .find = find_blocker},
	{"nodes", .find = find_nodes},
	{"asks", .find = find_asks},
	{"confirmed", .find = find_confirmed},
	{"state", .find = find_state},
	{"named", .find = find_named},
	{"watches", .find = find_watches},
	{"sends", .find = find_trace},
	{"lost", .find = find_lost},
	{"proofs", .find = find_proofs},
	{"drops", .find = find_drops},
	{"trust", .find = find_trust},
	{"wrote", .find = find_last_write},
	{"intact", .find = find_intact},
	{"losses", .find = find_losses},
	{"revocations", .find = find_revocations},
	{"data", .find = find_data},
	{"permits", .find = find_permits},
	{"word", .find = find_word},
	{.word = NULL}
};
