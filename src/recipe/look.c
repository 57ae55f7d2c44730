/*-------------------------------------------------------------------------
 *
 * look.c
 *		Looking for a deadlock in what all long waits tell.
 *
 * Whoever tells something new looks once right behind it.  Of the nodes of a
 * deadlock one was made last, so its owner sees them all: nobody needs to be
 * told that something changed, and who waits in peace asks for nothing, but for
 * a look from time to time for good measure.
 *
 * The one who sees itself as the last claims to give way, by a node that says
 * so; of several claims in one deadlock the first counts, and who sees another's
 * does nothing.  It then asks all others in the deadlock to tell anew, by
 * removing their nodes, and when they have done so and it is still there, has
 * the queues examined (exam.c).
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "waits.h"

/* While there is a deadlock that somebody else is to end. */
#define POLL_MS 500

/* Until those asked have answered, and how long they have. */
#define ANSWER_POLL_MS 50
#define ANSWER_MS 3000

/* After an examination that found no deadlock, before the next claim. */
#define DOUBT_MS 1000

/* Between looks that found nothing: at first, and at most. */
#define PAUSE_MS 10000
#define MAX_PAUSE_MS 120000

static void
forget_questions(ZklWaits *w)
{
	for (int i = 0; i < w->n_asked; i++)
		free(w->questions[i].name);
	free(w->questions);
	w->questions = NULL;
	w->n_asked = 0;
}

/* What was seen is old. */
void
zkl__look_forget(ZklWaits *w)
{
	w->looking = NULL;
	w->look_wanted = false;
	w->next_look_ms = 0;
	forget_questions(w);
	zkl__exam_free(w->exam);
	w->exam = NULL;
	free(w->found);
	w->found = NULL;
}

void
zkl__look_later(ZklSession *session, int ms)
{
	session->waits->next_look_ms = zkl_client_now() + ms;
	zkl__arm_alarm(session, session->waits->next_look_ms);
}

static void
look_from_time_to_time(ZklSession *session)
{
	ZklWaits   *w = session->waits;

	w->pause_ms = w->pause_ms == 0 ? PAUSE_MS
		: w->pause_ms * 2 < MAX_PAUSE_MS ? w->pause_ms * 2 : MAX_PAUSE_MS;
	zkl__look_later(session, w->pause_ms);
}


/*
 * Who gives way
 */

static bool
is_member(const uint64_t *members, int n, uint64_t id)
{
	for (int i = 0; i < n; i++)
		if (members[i] == id)
			return true;
	return false;
}

static bool
is_earlier(const ZklWaitNode *a, const ZklWaitNode *b)
{
	return zkl_is_before(a->number, a->name, b->number, b->name);
}

typedef struct Turn
{
	bool		claimed;		/* by somebody else, before any claim of mine */
	bool		mine_is_last;	/* nobody has told anything since */
	const ZklWaitNode *best;	/* to give way, if nobody claims to */
} Turn;

/*
 * Is it in this deadlock only because of its place in a lock's queue, which others
 * of its server would take over?  Then nobody there needs what it holds.
 */
static bool
only_keeps_place(const ZklWaitPicture *picture, const ZklWaitNode *node,
				 ZklCircle members)
{
	bool		any = false;

	for (int i = 0; i < picture->n_needs; i++)
	{
		const ZklNeed *need = &picture->needs[i];

		if (!is_member(need->any_of, need->n, node->session) ||
			!is_member(members.ids, members.n, need->waiter))
			continue;
		if (!need->in_line || &picture->nodes[need->source] != node)
			return false;
		any = true;
	}
	return any;
}

/*
 * The less the better: how many of the others would be stuck without it.  Among
 * equals who only keeps a place can step back, which costs nobody anything.
 */
static int
cost_of(const ZklWaitPicture *picture, const ZklWaitNode *node, ZklCircle members)
{
	int			stuck = zkl_stuck_without(picture->needs, picture->n_needs,
										  node->session, members);

	return stuck < 0 ? -1 : 2 * stuck + !only_keeps_place(picture, node, members);
}

/* It lets all others go on. */
#define LEAST_COST 1

/* The last one of those whose giving way keeps the fewest of the others stuck. */
static const ZklWaitNode *
choose(const ZklWaitPicture *picture, ZklCircle members)
{
	const ZklWaitNode *best = NULL;
	int			best_cost = 0;

	for (int i = 0; i < picture->n; i++)
	{
		const ZklWaitNode *node = &picture->nodes[i];
		int			cost;

		if (!is_member(members.ids, members.n, node->session) ||
			(best && best_cost <= LEAST_COST && is_earlier(node, best)))
			continue;
		cost = cost_of(picture, node, members);
		if (cost >= 0 && (best == NULL || cost < best_cost ||
						  (cost == best_cost && is_earlier(best, node))))
		{
			best = node;
			best_cost = cost;
		}
	}
	return best;
}

/* Now that all have told anew: does it help as much as anybody else would? */
static bool
is_good(const ZklWaitPicture *picture, const ZklWaitNode *mine, ZklCircle members)
{
	const ZklWaitNode *best = choose(picture, members);

	return best && cost_of(picture, mine, members) <= cost_of(picture, best, members);
}

static Turn
whose_turn(const ZklWaitPicture *picture, const ZklWaitNode *mine,
		   ZklCircle members)
{
	Turn		turn = {false, true, choose(picture, members)};

	for (int i = 0; i < picture->n; i++)
	{
		const ZklWaitNode *other = &picture->nodes[i];

		if (other == mine || !is_member(members.ids, members.n, other->session))
			continue;
		if (other->claims && (!mine->claims || is_earlier(other, mine)))
			turn.claimed = true;
		if (is_earlier(mine, other))
			turn.mine_is_last = false;
	}
	return turn;
}


/*
 * Questions
 */

static void
send_question(ZklSession *session, const char *name)
{
	char	   *path = zkl__path(session->waits->path, name);
	ZklCall    *call = path ? zkl__call_new(session, zkl__ignore_answer, NULL, NULL)
		: NULL;

	zkl__call_sent(call, call && zkl_client_delete(session->client, path,
												   &call->completion));
	free(path);
}

/* To all others; false when memory is exhausted. */
static bool
ask_others(ZklSession *session, const ZklWaitPicture *picture,
		   const ZklWaitNode *mine)
{
	ZklWaits   *w = session->waits;

	w->questions = calloc((size_t) picture->n, sizeof(ZklQuestion));
	if (w->questions == NULL)
		return false;
	w->asked_ms = zkl_client_now();
	for (int i = 0; i < picture->n; i++)
	{
		const ZklWaitNode *other = &picture->nodes[i];
		char	   *name;

		if (other == mine || !is_member(w->suspects, w->n_suspects, other->session))
			continue;
		name = strdup(other->name);
		if (name == NULL)
			return false;
		w->questions[w->n_asked++] = (ZklQuestion)
		{
			other->session, name
		};
	}
	return true;
}

/* Have all of these told anew?  Who has not is asked, perhaps again. */
static bool
have_answered(ZklSession *session, const ZklWaitPicture *picture, ZklCircle who)
{
	ZklWaits   *w = session->waits;
	bool		all = true;

	for (int i = 0; i < w->n_asked; i++)
	{
		const ZklWaitNode *node = zkl_picture_find(picture, w->questions[i].session);

		if (!is_member(who.ids, who.n, w->questions[i].session))
			continue;
		if (node == NULL)
			all = false;
		else if (strcmp(node->name, w->questions[i].name) == 0)
		{
			send_question(session, node->name);
			all = false;
		}
	}
	return all;
}


/*
 * One look
 */

static void
give_up_claim(ZklSession *session)
{
	ZklWaits   *w = session->waits;

	free(w->suspects);
	w->suspects = NULL;
	w->n_suspects = 0;
	zkl__waits_claim(session, false);
}

/* With a claim that counts: is it time to examine? */
static void
pursue(ZklSession *session, const ZklWaitPicture *picture,
	   const ZklWaitNode *mine, ZklCircle members)
{
	ZklWaits   *w = session->waits;

	if (w->questions == NULL && !ask_others(session, picture, mine))
		forget_questions(w);
	else if (have_answered(session, picture, members))
	{
		if (is_good(picture, mine, members))
		{
			w->keeps_place = only_keeps_place(picture, mine, members);
			zkl__exam_begin(session, picture);
		}
		else
			give_up_claim(session);
		return;
	}
	if (zkl_client_now() < w->asked_ms + ANSWER_MS)
		zkl__look_later(session, ANSWER_POLL_MS);
	else
		look_from_time_to_time(session);	/* the ensemble refuses to ask */
}

static void
judge_claimed(ZklSession *session, const ZklWaitPicture *picture,
			  const ZklWaitNode *mine)
{
	ZklWaits   *w = session->waits;
	ZklCircle	within = {w->suspects, w->n_suspects};
	uint64_t   *members;
	int			n = zkl_find_deadlock(picture->needs, picture->n_needs,
									  mine->session, within, &members);

	if (n > 0 && whose_turn(picture, mine, (ZklCircle) {members, n}).claimed)
		zkl__look_later(session, POLL_MS);
	else if (n > 0)
		pursue(session, picture, mine, (ZklCircle) {members, n});
	else if (w->questions && !have_answered(session, picture, within) &&
			 zkl_client_now() < w->asked_ms + ANSWER_MS)
		zkl__look_later(session, ANSWER_POLL_MS);
	else
		give_up_claim(session);
	free(members);
}

/*
 * Claims to give way, if it is this session's turn.  Who looks last sees it
 * first, so it has the right one look, by asking it.
 */
static void
take_turn(ZklSession *session, const ZklWaitPicture *picture,
		  const ZklWaitNode *mine, uint64_t *members, int n)
{
	ZklWaits   *w = session->waits;
	Turn		turn = whose_turn(picture, mine, (ZklCircle) {members, n});

	if (!turn.claimed && turn.best == mine &&
		zkl_client_now() >= w->doubted_ms + DOUBT_MS)
	{
		free(w->suspects);
		w->suspects = members;
		w->n_suspects = n;
		zkl__waits_claim(session, true);
		return;
	}
	if (!turn.claimed && turn.best && turn.best != mine && turn.mine_is_last)
		send_question(session, turn.best->name);
	zkl__look_later(session, POLL_MS);
	free(members);
}

static void
judge_unclaimed(ZklSession *session, const ZklWaitPicture *picture,
				const ZklWaitNode *mine)
{
	ZklCircle	everybody = {NULL, 0};
	uint64_t   *members;
	int			n = zkl_find_deadlock(picture->needs, picture->n_needs,
									  mine->session, everybody, &members);

	if (n > 0)
		take_turn(session, picture, mine, members, n);
	else
		look_from_time_to_time(session);
}

static void
judge(ZklSession *session, const ZklWaitPicture *picture)
{
	ZklWaits   *w = session->waits;
	uint64_t	id = (uint64_t) session->connection.session_id;
	const ZklWaitNode *mine = zkl_picture_find(picture, id);

	if (mine == NULL || strcmp(mine->name, w->name) != 0)
		zkl__waits_doubt(session);
	else if (mine->claims)
		judge_claimed(session, picture, mine);
	else
		judge_unclaimed(session, picture, mine);
}

static void
looked(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklWaits   *w = session->waits;
	ZklWaitPicture picture;

	if (w->looking != call)
		return;
	w->looking = NULL;
	if (result->code == ZKL_RC_CONNECTION_LOSS)
		w->look_wanted = true;
	else if (result->code != ZKL_RC_OK ||
			 !zkl_picture_read(result->children, result->n_children, &picture))
		look_from_time_to_time(session);
	else
	{
		judge(session, &picture);
		zkl_picture_free(&picture);
		zkl__waits_drive(session);
	}
}

static void
send_look(ZklSession *session)
{
	ZklWaits   *w = session->waits;
	ZklCall    *call;

	w->look_wanted = false;
	w->next_look_ms = 0;
	if (w->claims)
	{
		call = zkl__call_new(session, zkl__ignore_answer, NULL, NULL);
		zkl__call_sent(call, call && zkl_client_sync(session->client, w->path,
													 &call->completion));
	}
	call = zkl__call_new(session, looked, NULL, NULL);
	w->looking = zkl__call_sent(call, call && zkl_client_list(session->client, w->path,
															  &call->completion));
	w->look_wanted = w->looking == NULL;
}

/* Looks if it is time to, and something is told. */
void
zkl__look_drive(ZklSession *session)
{
	ZklWaits   *w = session->waits;

	if (w->name == NULL || w->looking || w->exam || w->found ||
		session->state != ZKL_SESSION_CONNECTED)
	{
		w->next_look_ms = 0;
		return;
	}
	if (w->look_wanted ||
		(w->next_look_ms != 0 && zkl_client_now() >= w->next_look_ms))
		send_look(session);
	else if (w->next_look_ms == 0)
		look_from_time_to_time(session);
}
