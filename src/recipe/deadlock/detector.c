/*-------------------------------------------------------------------------
 *
 * detector.c
 *		One long wait: when to publish it, to answer rings, and to search.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "detector.h"

/* How often the owner looks at its server for new local waiters, and writes what it finds. */
#define LOOK_MS 500

/* Between two searches at least; while a deadlock waits for its victim, and for how long. */
#define MIN_SEARCH_MS 200
#define SOON_MS 500
#define SOON_FOR_MS 3000

/* Between two rings of the victim of the same deadlock. */
#define RING_MS 1000

/* After a claim that failed: at first and at most, doubled each time, with a random part. */
#define CLAIM_PAUSE_MS 200
#define MAX_CLAIM_PAUSE_MS 10000

/* If a step could not finish what is due. */
#define RETRY_MS 50

ZklDetector *
zkl_detector_begin(ZklRequest *request, const ZklDetectorConfig *config,
				   const ZklDetectorCallbacks *callbacks, void *arg)
{
	ZklDetector *d = calloc(1, sizeof(ZklDetector));

	if (d == NULL)
		return NULL;
	d->session = request->session;
	d->request = request;
	d->config = *config;
	d->callbacks = callbacks;
	d->arg = arg;
	zkl__session_lock(d->session);
	d->me = (uint64_t) zkl__session_id(d->session);
	zkl__session_unlock(d->session);
	d->random = (unsigned) (d->me ^ d->me >> 32) * 2654435761u + (unsigned) zkl_now_ms();
	zkl_waiting_name(d->me, 0, d->name);
	return d;
}

void
zkl_detector_end(ZklDetector *d)
{
	zkl__step_end(d);
	zkl__report_withdraw(d);
	free(d);
}

/* Returns ms, and a random part of up to a half of it. */
static int
vary(ZklDetector *d, int ms)
{
	return ms + (int) ((unsigned) rand_r(&d->random) % ((unsigned) ms / 2 + 1));
}

/* Searches after 10, 30, 120, 120 ... seconds, since the last change or deadlock. */
static void
search_from_time_to_time(ZklDetector *d)
{
	static const int pauses_ms[] = {10000, 30000, 120000};

	d->next_search_ms = zkl_now_ms() + vary(d, pauses_ms[d->n_searches]);
	if (d->n_searches < 2)
		d->n_searches++;
}

static void
search_soon(ZklDetector *d)
{
	int64_t		now = zkl_now_ms();

	d->next_search_ms = d->searched_ms + MIN_SEARCH_MS > now ? d->searched_ms + MIN_SEARCH_MS : now;
}


/*
 * A search, and what follows
 */

static uint64_t
add_hash(uint64_t hash, uint64_t value)
{
	return (hash ^ value) * UINT64_C(1099511628211);
}

/* Identifies a deadlock: which sessions wait, and where.  Answers to rings do not change it. */
static uint64_t
deadlock_identity(const ZklDeadlockFound *found)
{
	uint64_t	hash = add_hash(UINT64_C(14695981039346656037), found->victim);

	for (int i = 0; i < found->n_edges; i++)
		hash = add_hash(hash, found->edges[i].session);
	for (int i = 0; i < found->n_reports; i++)
		hash = add_hash(hash, found->reports[i].report->identity);
	return hash | 1;
}

/* Returns whether this deadlock is new. */
static bool
note_seen(ZklDetector *d, const ZklDeadlockFound *found)
{
	uint64_t	seen = deadlock_identity(found);

	if (seen == d->seen)
		return false;
	d->seen = seen;
	d->soon_until_ms = zkl_now_ms() + SOON_FOR_MS;
	d->claim_pause_ms = 0;
	d->next_claim_ms = 0;
	return true;
}

/* Has the victim search: it may not know the deadlock yet. */
static void
call_victim(ZklDetector *d, const ZklDeadlockFound *found, bool is_new)
{
	if (is_new || zkl_now_ms() >= d->rang_ms + RING_MS)
	{
		d->rang_ms = zkl_now_ms();
		(void) zkl__ring(d, &found->victim, 1, NULL);
	}
	d->n_searches = 0;			/* its end may show another one: not after minutes */
	if (zkl_now_ms() < d->soon_until_ms)
		d->next_search_ms = zkl_now_ms() + SOON_MS;
	else
		search_from_time_to_time(d);
}

/* Returns whether this session must fail. */
static bool
claim(ZklDetector *d, const ZklDeadlockFound *found)
{
	if (zkl_now_ms() < d->next_claim_ms)
	{
		d->next_search_ms = d->next_claim_ms;
		return false;
	}
	if (zkl__verdict_claim(d, found))
		return true;
	d->claim_pause_ms = d->claim_pause_ms == 0 ? CLAIM_PAUSE_MS
		: d->claim_pause_ms * 2 < MAX_CLAIM_PAUSE_MS ? d->claim_pause_ms * 2 : MAX_CLAIM_PAUSE_MS;
	d->next_claim_ms = zkl_now_ms() + vary(d, d->claim_pause_ms);
	d->next_search_ms = d->next_claim_ms;
	return false;
}

/* This session is the victim.  Returns whether its wait must end. */
static bool
is_victim(ZklDetector *d, const ZklDeadlockFound *found)
{
	if (!zkl__verdict_describe(d, found))
	{
		search_from_time_to_time(d);
		return false;
	}
	d->deadlock.keeps_place = found->found == ZKL_FOUND_PLACE && d->config.may_requeue;
	return d->deadlock.keeps_place || claim(d, found);
}

/* Returns whether this session's wait must end. */
static bool
search(ZklDetector *d)
{
	ZklDeadlockFound found = zkl__search(d);
	bool		is_new;

	d->searched_ms = zkl_now_ms();
	d->is_limited = d->is_limited || found.found == ZKL_FOUND_TOO_MUCH;
	if (d->is_over)
		return false;
	if (d->is_removed)
		zkl__report_withdraw(d);
	if (found.found != ZKL_FOUND_VICTIM && found.found != ZKL_FOUND_PLACE)
	{
		d->seen = 0;
		search_from_time_to_time(d);
		return false;
	}
	is_new = note_seen(d, &found);
	if (found.victim == d->me)
		return is_victim(d, &found);
	call_victim(d, &found, is_new);
	return false;
}


/*
 * A step
 */

/* Publishes the wait, or what has changed. */
static void
update_report(ZklDetector *d)
{
	d->next_look_ms = zkl_now_ms() + LOOK_MS;
	if (!(d->is_published ? zkl__report_update(d) : zkl__report_publish(d)))
		return;
	d->n_searches = 0;
	search_soon(d);
}

/* Returns whether the wait must end. */
static bool
take_step(ZklDetector *d)
{
	if (zkl__report_is_rung(d))
	{
		zkl__report_answer(d);
		search_soon(d);
	}
	else if (zkl_now_ms() >= d->next_look_ms)
		update_report(d);
	return !d->is_over && d->is_published && zkl_now_ms() >= d->next_search_ms && search(d);
}

/* Sets *next_ms to the time of the next step. */
static void
schedule(ZklDetector *d, int64_t *next_ms)
{
	*next_ms = d->next_look_ms;
	if (d->is_published && d->next_search_ms < *next_ms)
		*next_ms = d->next_search_ms;
	if (zkl__report_is_rung(d) && zkl_now_ms() + RETRY_MS < *next_ms)
		*next_ms = zkl_now_ms() + RETRY_MS;
	if (d->has_waited)
		*next_ms = zkl_now_ms();
}

const ZklDeadlock *
zkl_detector_step(ZklDetector *d, int64_t *next_ms, bool *is_limited)
{
	bool		must_end;

	zkl__step_end(d);
	d->has_waited = false;
	must_end = take_step(d);
	schedule(d, next_ms);
	*is_limited = d->is_limited;
	if (must_end)
		return &d->deadlock;
	zkl__step_end(d);
	return NULL;
}
