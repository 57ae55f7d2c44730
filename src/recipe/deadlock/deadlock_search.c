/*-------------------------------------------------------------------------
 *
 * deadlock_search.c
 *		Searches the wait reports for deadlocks, and agrees on one victim.
 *
 * When to search: a session lists all reports once after it has published or
 * changed its own.  One report of a deadlock was created last, and its owner sees
 * all others, so no notifications are needed.  An undisturbed waiter repeats the
 * search only at growing intervals, as a precaution.
 *
 * Which session fails:
 *	1. The victim (victim.h) checks its queues and its server again, and replaces its
 *	   report by a claim.  Of several claims in one deadlock the first counts; a session
 *	   that sees an earlier claim waits.
 *	2. It probes all other members, by deleting their nodes.  Each owner checks its
 *	   queues and its server again, and reports again if it still waits.
 *	3. If all have reported the same wait again and the deadlock still exists, it starts
 *	   the cycle check (cycle_check.h).  If that confirms the deadlock, the request fails.
 *
 * A member that reports the same wait twice has released nothing between.  So whatever
 * the others have seen of it since its first report is still true.  They have: each
 * second report is composed after a synced list, sent behind the delete of the first one,
 * which the victim saw in its first search with those of all others.
 *
 * The threads that receive answers only store them.  The owner's thread searches
 * them in zkl__search_judge(): it takes them with the mutex held, works without the
 * mutex, and acts with it held again, unless what it has read is outdated by then.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "victim.h"
#include "cycle_check.h"
#include "recipe/queue/node.h"

/*
 * Between searches while a deadlock waits for its victim, and while probes are
 * unanswered; and how long these paces are kept after a report, a probe or an outage.
 */
#define POLL_MS 500
#define ANSWER_POLL_MS 50
#define SOON_FOR_MS 3000

/* From a failed claim to the next one: at first.  The pause doubles each time. */
#define VICTIM_CLAIM_PAUSE_MS 200

/* Between searches that found nothing: at first, and at most. */
#define PAUSE_MS 10000
#define MAX_PAUSE_MS 120000

/* The data that the owner's thread works on without the mutex, and its results. */
typedef struct Work
{
	uint64_t	era;
	uint64_t	me;
	char	   *name;			/* of my node */
	ZklCircle	suspects;		/* changed by no other thread */
	ZklNames   *seen;			/* this or check; the other one is NULL */
	ZklCycleCheck *check;
	bool		is_read;		/* seen was: these are its reports, and the choice */
	ZklWaitReports reports;
	ZklChoice	choice;
	ZklDeadlock *deadlock;		/* that the check confirms, or NULL */
} Work;

/* Forgets everything read so far, and makes the owner's thread drop its result. */
void
zkl__search_forget(ZklWaits *w)
{
	w->era++;
	w->children_call = NULL;
	w->next_search_ms = 0;
	free(w->seen);
	w->seen = NULL;
	w->has_probed = false;
	zkl__check_free(w->check);
	w->check = NULL;
}

static void
search_later(ZklSession *session, int ms)
{
	zkl__waits(session)->next_search_ms = zkl_now_ms() + ms;
	zkl__arm_timer(session, zkl__waits(session)->next_search_ms);
}

static int
next_pause_ms(int pause_ms, int first_ms)
{
	return pause_ms == 0 ? first_ms
		: pause_ms * 2 < MAX_PAUSE_MS ? pause_ms * 2 : MAX_PAUSE_MS;
}

static void
search_from_time_to_time(ZklSession *session)
{
	ZklWaits   *w = zkl__waits(session);

	w->pause_ms = next_pause_ms(w->pause_ms, PAUSE_MS);
	search_later(session, w->pause_ms);
}

/* Searches again soon, or at the slow pace if nothing has happened for long. */
static void
search_soon(ZklSession *session, int ms)
{
	if (zkl_now_ms() < zkl__waits(session)->active_ms + SOON_FOR_MS)
		search_later(session, ms);
	else
		search_from_time_to_time(session);
}

/* Makes the owner raise a warning. */
static void
warn(ZklSession *session)
{
	zkl__waits(session)->request->is_unsearched = true;
	zkl__wake(session);
}

/* The cycle check confirmed no deadlock, or a member did not answer. */
static void
withdraw_victim_claim(ZklSession *session)
{
	ZklWaits   *w = zkl__waits(session);

	w->victim_claim_pause_ms = next_pause_ms(w->victim_claim_pause_ms, VICTIM_CLAIM_PAUSE_MS);
	w->next_victim_claim_ms = zkl_now_ms() + w->victim_claim_pause_ms;
	zkl__waits_set_victim_claim(session, false);
}


/*
 * Probes
 */

static void
send_probe(ZklSession *session, const ZklWaitNode *node)
{
	zkl__delete_child(zkl__call_new(session, zkl__ignore_answer, NULL, NULL),
					  zkl__config(session)->waits_path, node->name);
}

/* Leaves out the suspects that are in this deadlock no more: they need not answer. */
static void
narrow_suspects(ZklWaits *w, Work *work)
{
	int			n = 0;

	for (int i = 0; i < w->n_suspects; i++)
		if (zkl_find_id(work->choice.members, work->choice.n, w->suspects[i]) >= 0)
		{
			w->suspects[n] = w->suspects[i];
			w->suspect_waits[n++] = w->suspect_waits[i];
		}
	w->n_suspects = n;
	work->suspects.n = n;
}

/* Probes the other suspects, which have reported before the claim. */
static void
probe_suspects(ZklSession *session, Work *work)
{
	narrow_suspects(zkl__waits(session), work);
	for (int i = 0; i < work->reports.n; i++)
	{
		const ZklWaitNode *node = &work->reports.nodes[i];

		if (node->session != work->me && zkl_is_in_circle(work->suspects, node->session))
			send_probe(session, node);
	}
	zkl__waits(session)->has_probed = true;
	zkl__waits(session)->active_ms = zkl_now_ms();
}

/* Returns the number of the wait that the session has reported, or 0. */
static uint64_t
reported_wait(const ZklWaitReports *reports, uint64_t session)
{
	const ZklWaitNode *node = zkl_reports_find(reports, session);

	return node ? node->wait : 0;
}

/* Has each suspect reported the same wait as before the claim, and no other, since then? */
static bool
have_all_answered(const ZklWaits *w, const ZklWaitReports *reports, const ZklWaitNode *victim_claim)
{
	for (int i = 0; i < w->n_suspects; i++)
	{
		const ZklWaitNode *node = zkl_reports_find(reports, w->suspects[i]);

		if (reported_wait(reports, w->suspects[i]) != w->suspect_waits[i] ||
			(node && zkl_wait_is_earlier(node, victim_claim)))
			return false;
	}
	return true;
}


/*
 * Acting on the result of a search
 */

/* All have reported again, and the deadlock exists: starts the check if still best. */
static void
check_cycle(ZklSession *session, Work *work)
{
	const ZklChoice *v = &work->choice;

	if (v->best == NULL || v->rank > v->best_rank)
		zkl__waits_set_victim_claim(session, false);
	else if (!zkl__check_begin(session, &work->reports, &work->seen,
							   v->rank == ZKL_RANK_LOCAL_PLACE))
		withdraw_victim_claim(session);
}

static void
act_on_victim_claim(ZklSession *session, Work *work)
{
	ZklWaits   *w = zkl__waits(session);
	const ZklChoice *v = &work->choice;
	const ZklWaitNode *victim_claim = zkl_reports_find(&work->reports, work->me);
	bool		all_answered;

	/* A session that has given up does not answer. */
	if (v->n > 0 && w->has_probed && zkl_now_ms() > w->active_ms + POLL_MS)
		narrow_suspects(w, work);
	all_answered = w->has_probed && have_all_answered(w, &work->reports, victim_claim);
	if (v->n > 0 && v->other_claims)
		search_soon(session, POLL_MS);
	else if (v->n > 0 && !w->has_probed)
	{
		probe_suspects(session, work);
		search_later(session, ANSWER_POLL_MS);
	}
	else if (v->n > 0 && all_answered)
		check_cycle(session, work);
	else if (w->has_probed && !all_answered && zkl_now_ms() < w->active_ms + SOON_FOR_MS)
		search_later(session, ANSWER_POLL_MS);
	else if (v->n > 0)
		withdraw_victim_claim(session);
	else
		zkl__waits_set_victim_claim(session, false);
}

static void
publish_victim_claim(ZklSession *session, Work *work)
{
	ZklWaits   *w = zkl__waits(session);
	int			n = work->choice.n;
	uint64_t   *waits = malloc((size_t) n * sizeof(uint64_t));

	if (waits == NULL)
	{
		search_soon(session, POLL_MS);
		return;
	}
	for (int i = 0; i < n; i++)
		waits[i] = reported_wait(&work->reports, work->choice.members[i]);
	free(w->suspects);
	free(w->suspect_waits);
	w->suspects = work->choice.members;
	w->suspect_waits = waits;
	w->n_suspects = n;
	work->choice.members = NULL;
	zkl__waits_set_victim_claim(session, true);
}

/*
 * Claims to be the victim if this session is.  The newest reporter is the first to
 * see the deadlock; if it is not the victim, it probes the victim, whose new
 * report then makes the victim search.
 */
static void
act_on_report(ZklSession *session, Work *work)
{
	ZklWaits   *w = zkl__waits(session);
	const ZklChoice *v = &work->choice;

	if (v->n <= 0)
	{
		w->victim_claim_pause_ms = 0;
		w->next_victim_claim_ms = 0;
		search_from_time_to_time(session);
	}
	else if (v->other_claims || v->best == NULL || strcmp(v->best->name, w->name) != 0)
	{
		if (!v->other_claims && v->best && v->mine_is_last)
			send_probe(session, v->best);
		search_soon(session, POLL_MS);
	}
	else if (zkl_now_ms() < w->next_victim_claim_ms)
		search_later(session, (int) (w->next_victim_claim_ms - zkl_now_ms()));
	else
		publish_victim_claim(session, work);
}


/*
 * On the owner's thread
 */

static bool
take_work(ZklSession *session, Work *work)
{
	ZklWaits   *w = zkl__waits(session);

	memset(work, 0, sizeof(*work));
	if (w->name == NULL ||
		(w->seen == NULL && (w->check == NULL || w->check->outstanding > 0)))
		return false;
	work->name = strdup(w->name);
	if (work->name == NULL)
		return false;
	work->era = w->era;
	work->me = (uint64_t) zkl__session_id(session);
	work->suspects = (ZklCircle)
	{
		w->suspects, w->n_suspects
	};
	work->seen = w->seen;
	work->check = w->check;
	w->seen = NULL;
	w->check = NULL;
	w->is_busy = true;
	return true;
}

/* Searches the reports, or completes the check. */
static void
work_on(Work *work)
{
	if (work->seen)
	{
		work->is_read = zkl_reports_read(work->seen->names, work->seen->n, &work->reports);
		if (work->is_read)
			zkl_choose(&work->reports, work->me, work->name, work->suspects, &work->choice);
	}
	else if (!work->check->failed)
		work->deadlock = zkl_check_result(work->check, work->me, work->suspects);
}

/*
 * The report is not the newest one of this session: another program has removed it, or
 * has made one in the name of this session, or an answer was lost.  Finds out, at a slow
 * pace, because the other program may do it again.
 */
static void
find_own_reports(ZklSession *session)
{
	zkl__waits(session)->unknown = true;
	search_later(session, POLL_MS);
}

static void
act_on_reports(ZklSession *session, Work *work)
{
	ZklChoice  *v = &work->choice;

	if (!work->is_read)
		search_from_time_to_time(session);
	else if (!v->is_mine)
		find_own_reports(session);
	else if (v->n == ZKL_GRAPH_UNSEARCHED)
	{
		warn(session);
		search_from_time_to_time(session);
	}
	else if (zkl__waits(session)->is_victim_claim)
		act_on_victim_claim(session, work);
	else
		act_on_report(session, work);
}

/* Returns the deadlock, or withdraws the claim. */
static void
act_on_check(ZklSession *session, Work *work)
{
	if (work->deadlock)
		search_later(session, POLL_MS);
	else
		withdraw_victim_claim(session);
}

/*
 * Works on whatever has been read since the last call.  Called by the owner's
 * thread, without the mutex.  Returns the deadlock that the session's request is the
 * victim of, or NULL.
 */
ZklDeadlock *
zkl__search_judge(ZklSession *session)
{
	ZklWaits   *w = zkl__waits(session);
	Work		work;
	bool		is_current;

	zkl__session_lock(session);
	is_current = take_work(session, &work);
	zkl__session_unlock(session);
	if (!is_current)
		return NULL;
	work_on(&work);
	zkl__session_lock(session);
	w->is_busy = false;
	is_current = w->era == work.era;
	if (is_current && work.check)
		act_on_check(session, &work);
	else if (is_current)
		act_on_reports(session, &work);
	zkl__waits_drive(session);
	zkl__session_unlock(session);
	zkl_reports_free(&work.reports);
	free(work.choice.members);
	zkl__check_free(work.check);
	free(work.seen);
	free(work.name);
	if (is_current)
		return work.deadlock;
	zkl_deadlock_free(work.deadlock);
	return NULL;
}


/*
 * Listing the reports
 */

static void
on_reports(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklWaits   *w = zkl__waits(session);
	bool		too_many = false;

	if (w->children_call != call)
		return;
	w->children_call = NULL;
	if (result->code == ZKL_RC_CONNECTION_LOSS)
		w->next_search_ms = zkl_now_ms();
	else
	{
		if (result->code == ZKL_RC_OK)
			w->seen = zkl_names_copy(result->children, result->n_children,
									 ZKL_WAITS_MAX, ZKL_WAITS_MAX_BYTES, &too_many);
		if (too_many)
			warn(session);
		if (w->seen == NULL)
			search_from_time_to_time(session);
		zkl__wake(session);
	}
}

static void
send_get_reports(ZklSession *session)
{
	ZklWaits   *w = zkl__waits(session);

	w->next_search_ms = 0;
	w->children_call = zkl__get_children(zkl__call_new(session, on_reports, NULL, NULL),
										 zkl__config(session)->waits_path,
										 w->is_victim_claim, false);
	if (w->children_call == NULL)
		w->next_search_ms = zkl_now_ms();
}

/* Lists the reports if this is due, and this session has one. */
void
zkl__search_drive(ZklSession *session)
{
	ZklWaits   *w = zkl__waits(session);

	if (w->name == NULL || w->children_call || w->seen || w->check || w->is_busy)
		return;
	if (w->next_search_ms == 0)
		search_from_time_to_time(session);
	else if (zkl_now_ms() >= w->next_search_ms)
		send_get_reports(session);
	else
		zkl__arm_timer(session, w->next_search_ms);
}
