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

/* Between searches while a deadlock waits for its victim. */
#define POLL_MS 500

/* Between searches while probes are unanswered, and how long that pace is kept. */
#define ANSWER_POLL_MS 50
#define ANSWER_MS 3000

/* From a cycle check that found no deadlock to the next claim. */
#define UNCONFIRMED_MS 1000

/* From a cycle check that could not be completed to the next search. */
#define AGAIN_MS 200

/* Between searches that found nothing: at first, and at most. */
#define PAUSE_MS 10000
#define MAX_PAUSE_MS 120000

static void
forget_probes(ZklWaits *w)
{
	for (int i = 0; i < w->n_asked; i++)
		free(w->probes[i].name);
	free(w->probes);
	w->probes = NULL;
	w->n_asked = 0;
}

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
	forget_probes(w);
	zkl__check_free(w->check);
	w->check = NULL;
}

void
zkl__search_later(ZklSession *session, int ms)
{
	session->waits->next_search_ms = zkl_client_now() + ms;
	zkl__arm_timer(session, session->waits->next_search_ms);
}

static void
search_from_time_to_time(ZklSession *session)
{
	ZklWaits   *w = session->waits;

	w->pause_ms = w->pause_ms == 0 ? PAUSE_MS
		: w->pause_ms * 2 < MAX_PAUSE_MS ? w->pause_ms * 2 : MAX_PAUSE_MS;
	zkl__search_later(session, w->pause_ms);
}


/*
 * Probes
 */

static void
send_probe(ZklSession *session, const char *name)
{
	char	   *path = zkl__path(session->waits->path, name);
	ZklCall    *call = path ? zkl__call_new(session, zkl__ignore_answer, NULL, NULL)
		: NULL;

	zkl__call_sent(call, call && zkl_client_delete(session->client, path,
												   &call->completion));
	free(path);
}

/* Records the nodes of all other suspects; returns false if memory is exhausted. */
static bool
ask_others(ZklSession *session, const ZklWaitReports *reports)
{
	ZklWaits   *w = session->waits;
	ZklCircle	suspects = {w->suspects, w->n_suspects};

	w->probes = calloc((size_t) reports->n, sizeof(ZklProbe));
	if (w->probes == NULL)
		return false;
	w->asked_ms = zkl_client_now();
	for (int i = 0; i < reports->n; i++)
	{
		const ZklWaitNode *other = &reports->nodes[i];
		char	   *name;

		if (strcmp(other->name, w->name) == 0 ||
			!zkl_is_in_circle(suspects, other->session))
			continue;
		name = strdup(other->name);
		if (name == NULL)
			return false;
		w->probes[w->n_asked++] = (ZklProbe)
		{
			other->session, name
		};
	}
	return true;
}

/* Have all these sessions reported again?  Probes those that have not, perhaps again. */
static bool
have_answered(ZklSession *session, const ZklWaitReports *reports, ZklCircle who)
{
	ZklWaits   *w = session->waits;
	bool		all = true;

	for (int i = 0; i < w->n_asked; i++)
	{
		const ZklWaitNode *node = zkl_reports_find(reports, w->probes[i].session);

		if (!zkl_is_in_circle(who, w->probes[i].session))
			continue;
		if (node == NULL)
			all = false;
		else if (strcmp(node->name, w->probes[i].name) == 0)
		{
			send_probe(session, node->name);
			all = false;
		}
	}
	return all;
}


/*
 * Acting on the result of a search
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

/* Searches again soon; once ANSWER_MS have passed, at the slow pace. */
static void
poll_answers(ZklSession *session)
{
	if (zkl_client_now() < session->waits->asked_ms + ANSWER_MS)
		zkl__search_later(session, ANSWER_POLL_MS);
	else
		search_from_time_to_time(session);
}

/* All have reported again, and the deadlock exists: starts the check if still best. */
static void
check_cycle(ZklSession *session, const ZklWaitReports *reports, const ZklChoice *v)
{
	ZklWaits   *w = session->waits;

	if (v->best == NULL || v->rank > v->best_rank)
	{
		give_up_claim(session);
		return;
	}
	w->keeps_place = v->rank == ZKL_RANK_LOCAL_PLACE;
	zkl__check_begin(session, reports);
	if (w->check == NULL)
		zkl__search_later(session, AGAIN_MS);
}

static void
act_claimed(ZklSession *session, const ZklWaitReports *reports, const ZklChoice *v)
{
	ZklWaits   *w = session->waits;
	ZklCircle	suspects = {w->suspects, w->n_suspects};
	ZklCircle	members = {v->members, v->n};

	if (v->n > 0 && v->claimed)
		zkl__search_later(session, POLL_MS);
	else if (v->n > 0 && w->probes == NULL && !ask_others(session, reports))
	{
		forget_probes(w);
		search_from_time_to_time(session);
	}
	else if (v->n > 0 && have_answered(session, reports, members))
		check_cycle(session, reports, v);
	else if (v->n > 0)
		poll_answers(session);
	else if (w->probes && zkl_client_now() < w->asked_ms + ANSWER_MS &&
			 !have_answered(session, reports, suspects))
		zkl__search_later(session, ANSWER_POLL_MS);
	else
		give_up_claim(session);
}

/*
 * Claims to be the victim if this session is.  The newest reporter is the first to
 * see the deadlock; if it is not the victim, it probes the victim, whose new
 * report then makes the victim search.
 */
static void
act_unclaimed(ZklSession *session, ZklChoice *v)
{
	ZklWaits   *w = session->waits;
	bool		is_best = v->best && strcmp(v->best->name, w->name) == 0;

	if (v->n <= 0)
		search_from_time_to_time(session);
	else if (!v->claimed && is_best && zkl_client_now() >= w->unconfirmed_ms + UNCONFIRMED_MS)
	{
		free(w->suspects);
		w->suspects = v->members;
		w->n_suspects = v->n;
		v->members = NULL;
		zkl__waits_claim(session, true);
	}
	else
	{
		if (!v->claimed && v->best && !is_best && v->mine_is_last)
			send_probe(session, v->best->name);
		zkl__search_later(session, POLL_MS);
	}
}


/*
 * On the owner's thread
 */

/* What the owner's thread works on without the mutex. */
typedef struct Work
{
	uint64_t	era;
	uint64_t	me;
	char	   *name;			/* of my node */
	ZklCircle	suspects;		/* changed by no other thread */
	ZklNames   *seen;			/* this or check; the other one is NULL */
	ZklCycleCheck *check;
} Work;

static bool
take_work(ZklSession *session, ZklRequest *request, Work *work)
{
	ZklWaits   *w = session->waits;

	memset(work, 0, sizeof(*work));
	if (w->request != request || w->name == NULL ||
		(w->seen == NULL && (w->check == NULL || w->check->outstanding > 0)))
		return false;
	work->name = strdup(w->name);
	if (work->name == NULL)
		return false;
	work->era = w->era;
	work->me = (uint64_t) session->connection.session_id;
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

/* With the mutex held again: is the work still up to date? */
static bool
is_current(ZklSession *session, const ZklRequest *request, const Work *work)
{
	ZklWaits   *w = session->waits;

	w->is_busy = false;
	return w->era == work->era && w->request == request;
}

/* Makes the owner raise a warning. */
static void
give_up_search(ZklSession *session)
{
	session->is_unsearched = true;
	zkl__wake(session);
	search_from_time_to_time(session);
}

static void
judge_reports(ZklRequest *request, const Work *work)
{
	ZklSession *session = request->session;
	ZklWaitReports reports;
	ZklChoice	v = {0};
	bool		is_read = zkl_reports_read(work->seen->names, work->seen->n, &reports);

	if (is_read)
		zkl_choose(&reports, work->me, work->name, work->suspects, &v);
	zkl__session_lock(session);
	if (is_current(session, request, work))
	{
		if (!is_read)
			search_from_time_to_time(session);
		else if (!v.is_mine)
			zkl__waits_note_probe(session);
		else if (v.n == ZKL_GRAPH_UNSEARCHED)
			give_up_search(session);
		else if (v.claims)
			act_claimed(session, &reports, &v);
		else
			act_unclaimed(session, &v);
	}
	zkl__waits_drive(session);
	zkl__session_unlock(session);
	if (is_read)
		zkl_reports_free(&reports);
	free(v.members);
}

/* All data have arrived: lists the queues that they name. */
static void
judge_data(ZklRequest *request, Work *work)
{
	ZklSession *session = request->session;
	bool		good = !work->check->failed && zkl_check_parse(work->check);

	zkl__session_lock(session);
	if (is_current(session, request, work))
	{
		if (good)
		{
			session->waits->check = work->check;
			work->check = NULL;
			zkl__check_list_queues(session);
		}
		else
			zkl__search_later(session, AGAIN_MS);
	}
	zkl__waits_drive(session);
	zkl__session_unlock(session);
}

/* The lists have arrived: returns the deadlock, or withdraws the claim without one. */
static ZklDeadlock *
judge_queues(ZklRequest *request, Work *work, const ZklWaitReport *report)
{
	ZklSession *session = request->session;
	ZklWaits   *w = session->waits;
	bool		failed = work->check->failed;
	ZklDeadlock *deadlock = failed ? NULL
		: zkl_check_result(work->check, work->me, work->suspects, report->key_of);
	bool		is_true;

	zkl__session_lock(session);
	is_true = is_current(session, request, work);
	if (deadlock && is_true)
	{
		deadlock->keeps_place = w->keeps_place;
		zkl__search_later(session, POLL_MS);
	}
	else if (is_true && failed)
		zkl__search_later(session, AGAIN_MS);
	else if (is_true)
	{
		w->claims = false;
		w->unconfirmed_ms = zkl_client_now();
		zkl__waits_note_probe(session);
	}
	zkl__waits_drive(session);
	zkl__session_unlock(session);
	if (!is_true)
	{
		zkl_deadlock_free(deadlock);
		deadlock = NULL;
	}
	return deadlock;
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
	ZklDeadlock *deadlock = NULL;
	Work		work;
	bool		any;

	zkl__session_lock(session);
	any = take_work(session, request, &work);
	zkl__session_unlock(session);
	if (!any)
		return NULL;
	if (work.seen)
		judge_reports(request, &work);
	else if (!work.check->understood)
		judge_data(request, &work);
	else
		deadlock = judge_queues(request, &work, report);
	zkl__check_free(work.check);
	free(work.seen);
	free(work.name);
	return deadlock;
}


/*
 * Listing the reports
 */

static void
on_reports_listed(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklWaits   *w = session->waits;

	if (w->list_call != call)
		return;
	w->list_call = NULL;
	if (result->code == ZKL_RC_CONNECTION_LOSS)
		w->search_wanted = true;
	else
	{
		if (result->code == ZKL_RC_OK)
			w->seen = zkl_names_copy(result->children, result->n_children,
									 ZKL_WAITS_MAX, ZKL_WAITS_MAX_BYTES,
									 &session->is_unsearched);
		if (w->seen == NULL)
			search_from_time_to_time(session);
		zkl__wake(session);
	}
}

static void
send_report_list(ZklSession *session)
{
	ZklWaits   *w = session->waits;
	ZklCall    *call;

	w->search_wanted = false;
	w->next_search_ms = 0;
	call = zkl__call_new(session, on_reports_listed, NULL, NULL);
	if (w->claims)
		w->list_call = zkl__list_synced(call, w->path, false);
	else
		w->list_call = zkl__call_sent(call, call &&
									  zkl_client_list(session->client, w->path,
													  &call->completion));
	w->search_wanted = w->list_call == NULL;
}

/* Lists the reports if this is due, and this session has one. */
void
zkl__search_drive(ZklSession *session)
{
	ZklWaits   *w = session->waits;

	if (w->name == NULL || w->list_call || w->seen || w->check || w->is_busy ||
		session->state != ZKL_SESSION_CONNECTED)
	{
		w->next_search_ms = 0;
		return;
	}
	if (w->search_wanted ||
		(w->next_search_ms != 0 && zkl_client_now() >= w->next_search_ms))
		send_report_list(session);
	else if (w->next_search_ms == 0)
		search_from_time_to_time(session);
}
