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
 *	1. The victim (victim.h) replaces its report by a claim.  Of several claims in
 *	   one deadlock the first counts; a session that sees an earlier claim waits.
 *	2. It probes all other members, by deleting their nodes.  Each owner checks its
 *	   queues and its server again, and reports again if it still waits.
 *	3. If all have reported and the deadlock still exists, it starts the cycle
 *	   check (cycle_check.h).  If that confirms the deadlock, the request fails.
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

/*
 * Between searches while a deadlock waits for its victim, and while probes are
 * unanswered; and how long these paces are kept after a report, a probe or an outage.
 */
#define POLL_MS 500
#define ANSWER_POLL_MS 50
#define SOON_FOR_MS 3000

/*
 * From a cycle check that confirmed no deadlock to the next one: at first.  The pause
 * doubles with each check.  From the second value on, the owner raises a warning.
 */
#define CHECK_PAUSE_MS 200
#define WARN_PAUSE_MS 3000

/* Between searches that found nothing: at first, and at most. */
#define PAUSE_MS 10000
#define MAX_PAUSE_MS 120000

/* What the owner's thread works on without the mutex, and what it finds. */
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
	bool		is_checked;		/* the queues were compared with the data */
	ZklDeadlock *deadlock;		/* that they confirm, or NULL */
} Work;

/* Forgets everything read so far, and makes the owner's thread drop its result. */
void
zkl__search_forget(ZklWaits *w)
{
	w->era++;
	w->list_call = NULL;
	w->search_wanted = false;
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

/* A cycle check confirmed no deadlock, or failed. */
static void
pause_checks(ZklSession *session)
{
	ZklWaits   *w = zkl__waits(session);

	w->check_pause_ms = next_pause_ms(w->check_pause_ms, CHECK_PAUSE_MS);
	w->next_check_ms = zkl_now_ms() + w->check_pause_ms;
	if (w->check_pause_ms >= WARN_PAUSE_MS)
		warn(session);
	search_later(session, w->check_pause_ms);
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

/*
 * Probes those of these sessions that have not reported since the claim and its probes,
 * perhaps again.  Returns whether all of them have reported, at least n.
 */
static bool
probe_others(ZklSession *session, const Work *work, ZklCircle who, int n)
{
	ZklWaits   *w = zkl__waits(session);
	const ZklWaitNode *claim = zkl_reports_find(&work->reports, work->me);
	bool		all = true;
	int			n_reports = 0;

	for (int i = 0; i < work->reports.n; i++)
	{
		const ZklWaitNode *node = &work->reports.nodes[i];

		if (node == claim || !zkl_is_in_circle(who, node->session))
			continue;
		n_reports++;
		if (w->has_probed && zkl_wait_is_earlier(claim, node))
			continue;
		send_probe(session, node);
		all = false;
	}
	if (!w->has_probed)
	{
		w->has_probed = true;
		w->n_probed = n_reports;
		w->active_ms = zkl_now_ms();
	}
	return all && n_reports >= n;
}


/*
 * Acting on the result of a search
 */

/* All have reported again, and the deadlock exists: starts the check if still best. */
static void
check_cycle(ZklSession *session, const Work *work)
{
	ZklWaits   *w = zkl__waits(session);
	const ZklChoice *v = &work->choice;
	int64_t		now = zkl_now_ms();

	if (v->best == NULL || v->rank > v->best_rank)
	{
		zkl__waits_claim(session, false);
		return;
	}
	if (now < w->next_check_ms)
	{
		search_later(session, (int) (w->next_check_ms - now));
		return;
	}
	w->keeps_place = v->rank == ZKL_RANK_LOCAL_PLACE;
	zkl__check_begin(session, &work->reports);
	if (w->check == NULL)
		pause_checks(session);
}

static void
act_claimed(ZklSession *session, const Work *work)
{
	ZklWaits   *w = zkl__waits(session);
	const ZklChoice *v = &work->choice;
	ZklCircle	members = {v->members, v->n};

	if (v->n > 0 && v->claimed)
		search_soon(session, POLL_MS);
	else if (v->n > 0 && probe_others(session, work, members, 0))
		check_cycle(session, work);
	else if (v->n > 0)
		search_soon(session, ANSWER_POLL_MS);
	else if (w->has_probed && zkl_now_ms() < w->active_ms + SOON_FOR_MS &&
			 !probe_others(session, work, work->suspects, w->n_probed))
		search_later(session, ANSWER_POLL_MS);
	else
		zkl__waits_claim(session, false);
}

static void
claim(ZklSession *session, ZklChoice *v)
{
	ZklWaits   *w = zkl__waits(session);

	free(w->suspects);
	w->suspects = v->members;
	w->n_suspects = v->n;
	v->members = NULL;
	zkl__waits_claim(session, true);
}

/*
 * Claims to be the victim if this session is.  The newest reporter is the first to
 * see the deadlock; if it is not the victim, it probes the victim, whose new
 * report then makes the victim search.
 */
static void
act_unclaimed(ZklSession *session, ZklChoice *v)
{
	ZklWaits   *w = zkl__waits(session);
	bool		is_best = v->best && strcmp(v->best->name, w->name) == 0;
	int64_t		now = zkl_now_ms();

	if (v->n <= 0)
	{
		w->check_pause_ms = 0;
		search_from_time_to_time(session);
	}
	else if (v->claimed || !is_best)
	{
		if (!v->claimed && v->best && v->mine_is_last)
			send_probe(session, v->best);
		search_soon(session, POLL_MS);
	}
	else if (now < w->next_check_ms)
		search_later(session, (int) (w->next_check_ms - now));
	else
		claim(session, v);
}


/*
 * On the owner's thread
 */

static bool
take_work(ZklSession *session, ZklRequest *request, Work *work)
{
	ZklWaits   *w = zkl__waits(session);

	memset(work, 0, sizeof(*work));
	if (w->request != request || w->name == NULL ||
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

/* Searches the reports, parses the data of a check, or compares them with the queues. */
static void
work_on(Work *work, ZklKeyOf key_of)
{
	ZklCycleCheck *check = work->check;

	if (work->seen)
	{
		work->is_read = zkl_reports_read(work->seen->names, work->seen->n, &work->reports);
		if (work->is_read)
			zkl_choose(&work->reports, work->me, work->name, work->suspects, &work->choice);
	}
	else if (!check->failed && check->understood)
	{
		work->deadlock = zkl_check_result(check, work->me, work->suspects, key_of);
		work->is_checked = true;
	}
	else if (!check->failed)
		check->failed = !zkl_check_parse(check);
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
	else if (v->claims)
		act_claimed(session, work);
	else
		act_unclaimed(session, v);
}

/* Lists the queues that the data name, returns the deadlock, or withdraws the claim. */
static void
act_on_check(ZklSession *session, Work *work)
{
	ZklWaits   *w = zkl__waits(session);

	if (work->check->failed)
		pause_checks(session);
	else if (!work->is_checked)
	{
		w->check = work->check;
		work->check = NULL;
		zkl__check_list_queues(session);
	}
	else if (work->deadlock)
	{
		work->deadlock->keeps_place = w->keeps_place;
		search_later(session, POLL_MS);
	}
	else
	{
		pause_checks(session);
		w->claims = false;
		zkl__waits_note_probe(session);
	}
}

/*
 * Works on whatever has been read since the last call.  Called by the owner's
 * thread, without the mutex.  Returns the deadlock that the request is the victim
 * of, or NULL.
 */
ZklDeadlock *
zkl__search_judge(ZklRequest *request, const ZklWaitReport *report)
{
	ZklSession *session = request->session;
	ZklWaits   *w = zkl__waits(session);
	Work		work;
	bool		is_current;

	zkl__session_lock(session);
	is_current = take_work(session, request, &work);
	zkl__session_unlock(session);
	if (!is_current)
		return NULL;
	work_on(&work, report->key_of);
	zkl__session_lock(session);
	w->is_busy = false;
	is_current = w->era == work.era && w->request == request;
	if (is_current && work.seen)
		act_on_reports(session, &work);
	else if (is_current)
		act_on_check(session, &work);
	zkl__waits_drive(session);
	zkl__session_unlock(session);
	if (work.is_read)
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
on_reports_listed(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklWaits   *w = zkl__waits(session);
	bool		too_many = false;

	if (w->list_call != call)
		return;
	w->list_call = NULL;
	if (result->code == ZKL_RC_CONNECTION_LOSS)
		w->search_wanted = true;
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
send_report_list(ZklSession *session)
{
	ZklWaits   *w = zkl__waits(session);
	ZklCall    *call;

	w->search_wanted = false;
	w->next_search_ms = 0;
	call = zkl__call_new(session, on_reports_listed, NULL, NULL);
	if (w->claims)
		w->list_call = zkl__list_synced(call, zkl__config(session)->waits_path, false);
	else
		w->list_call = zkl__call_sent(call, call &&
									  zkl_client_list(zkl__client(session),
													  zkl__config(session)->waits_path,
													  &call->completion));
	w->search_wanted = w->list_call == NULL;
}

/* Lists the reports if this is due, and this session has one. */
void
zkl__search_drive(ZklSession *session)
{
	ZklWaits   *w = zkl__waits(session);

	if (w->name == NULL || w->list_call || w->seen || w->check || w->is_busy ||
		!zkl__is_connected(session))
	{
		w->next_search_ms = 0;
		return;
	}
	if (w->search_wanted ||
		(w->next_search_ms != 0 && zkl_now_ms() >= w->next_search_ms))
		send_report_list(session);
	else if (w->next_search_ms == 0)
		search_from_time_to_time(session);
}
