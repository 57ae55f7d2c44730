/*-------------------------------------------------------------------------
 *
 * detector.c
 *		One long wait: when to write its report, and to search.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "detector.h"

/* How often the owner looks at its server for new local waiters, and writes what it finds. */
#define SCAN_MS 500

/* If a ring cannot be answered yet. */
#define RETRY_MS 50

/* Between two searches after rings and changes, at least. */
#define MIN_SEARCH_MS 200

/* After a search that has failed, doubled up to PAUSE_MS. */
#define FAILED_PAUSE_MS 1000

/* Between other searches, at first and at most, doubled each time, with a random part. */
#define PAUSE_MS 10000
#define MAX_PAUSE_MS 120000

/* The same while there is a deadlock with one victim; also between two claims of it. */
#define SEEN_PAUSE_MS 200
#define MAX_SEEN_PAUSE_MS 10000

ZklDetector *
zkl_detector_begin(ZklSession *session, ZklRequest *request, const ZklDetectorConfig *config,
				   const ZklDetectorCallbacks *callbacks, void *arg)
{
	const char *root = zkl_session_root(session);
	size_t		size = strlen(root) + sizeof("/waiting");
	ZklDetector *d = calloc(1, sizeof(ZklDetector) + 2 * size);

	if (d == NULL)
		return NULL;
	d->session = session;
	d->request = request;
	d->root = root;
	d->waiting_path = (char *) (d + 1);
	d->bells_path = d->waiting_path + size;
	snprintf(d->waiting_path, size, "%s/waiting", root);
	snprintf(d->bells_path, size, "%s/bells", root);
	d->config = *config;
	d->callbacks = callbacks;
	d->arg = arg;
	d->me = (uint64_t) zkl_session_info(session).key.id;
	d->random = (unsigned) (d->me ^ d->me >> 32) * 2654435761u + (unsigned) zkl_now_ms();
	return d;
}

void
zkl_detector_end(ZklDetector *d)
{
	zkl__step_end(d);
	zkl__report_withdraw(d);
	free(d);
}


/*
 * A search, and what follows
 */

/* Plans the next search after the pause, and a random part of up to a half of it. */
static void
plan_search(ZklDetector *d)
{
	int			part = (int) ((unsigned) rand_r(&d->random) % ((unsigned) d->pause_ms / 2 + 1));

	d->next_search_ms = zkl_now_ms() + d->pause_ms + part;
}

/* Returns the pause after this one. */
static int
longer(int pause_ms, int least_ms, int most_ms)
{
	pause_ms = pause_ms * 2 < most_ms ? pause_ms * 2 : most_ms;
	return pause_ms > least_ms ? pause_ms : least_ms;
}

static void
plan_long_pause(ZklDetector *d)
{
	d->pause_ms = longer(d->pause_ms, PAUSE_MS, MAX_PAUSE_MS);
	plan_search(d);
}

/* This session is the victim.  Returns whether its wait must end. */
static bool
is_victim(ZklDetector *d, const ZklDeadlockFound *found)
{
	zkl__verdict_describe(d, found);
	d->deadlock.keeps_place = found->kind == ZKL_FOUND_PLACE && d->config.may_requeue;
	if (d->deadlock.keeps_place || zkl__verdict_is_victim(d, found))
		return true;
	plan_search(d);
	d->earliest_search_ms = d->next_search_ms;
	return false;
}

/*
 * Returns whether this session's wait must end.  The next search is planned before each wait
 * for an answer, because the search may be left there.
 */
static bool
search(ZklDetector *d)
{
	int			seen_pause_ms = d->pause_ms;
	uint64_t	victim = d->victim;
	ZklDeadlockFound found;

	d->earliest_search_ms = zkl_now_ms() + MIN_SEARCH_MS;
	d->failed_pause_ms = longer(d->failed_pause_ms, FAILED_PAUSE_MS, PAUSE_MS);
	d->next_search_ms = zkl_now_ms() + d->failed_pause_ms;
	found = zkl__search(d);
	d->failed_pause_ms = 0;
	d->victim = 0;
	plan_long_pause(d);
	if (found.kind == ZKL_FOUND_NO_REPORT)
		d->published = ZKL_UNCERTAIN;
	if (found.kind != ZKL_FOUND_VICTIM && found.kind != ZKL_FOUND_PLACE)
		return false;
	d->pause_ms = found.victim->session == victim
		? longer(seen_pause_ms, SEEN_PAUSE_MS, MAX_SEEN_PAUSE_MS) : SEEN_PAUSE_MS;
	d->victim = found.victim->session;
	plan_search(d);
	if (found.victim->session == d->me)
		return is_victim(d, &found);
	(void) zkl__ring(d, &found.victim, 1);	/* it may not know the deadlock yet */
	return false;
}


/*
 * A step
 */

static void
take_step(ZklDetector *d)
{
	bool		is_rung = zkl__report_is_rung(d);

	if (is_rung || d->published == ZKL_UNCERTAIN || zkl_now_ms() >= d->next_scan_ms)
	{
		d->next_scan_ms = zkl_now_ms() + SCAN_MS;
		if ((zkl__report_write(d) || is_rung) && d->earliest_search_ms < d->next_search_ms)
			d->next_search_ms = d->earliest_search_ms;
		if (zkl__report_is_rung(d))
			d->next_scan_ms = zkl_now_ms() + RETRY_MS;
	}
	if (d->published == ZKL_PUBLISHED && zkl_now_ms() >= d->next_search_ms)
		d->must_end = search(d);
}

/* Takes the step, as far as it is possible. */
static void
try_step(ZklDetector *d)
{
	int			left = setjmp(d->scratch.left);

	if (left == 0)
		take_step(d);
	else if (left == ZKL_LEFT_TOO_MUCH)
	{
		d->is_limited = true;
		plan_long_pause(d);
	}
}

const ZklDeadlock *
zkl_detector_step(ZklDetector *d, int64_t *next_ms, bool *is_limited)
{
	zkl__step_end(d);
	d->has_waited = d->must_end = false;
	try_step(d);
	*next_ms = d->next_scan_ms;
	if (d->published == ZKL_PUBLISHED && d->next_search_ms < *next_ms)
		*next_ms = d->next_search_ms;
	if (d->has_waited)
		*next_ms = zkl_now_ms();
	*is_limited = d->is_limited;
	return d->must_end ? &d->deadlock : NULL;
}
