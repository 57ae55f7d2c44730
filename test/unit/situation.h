/*-------------------------------------------------------------------------
 *
 * situation.h
 *		Queues and wait reports as a test wants them, and a search that reads them.
 *
 * Sessions are numbers from 1; 9 is one of another program, without a report.  No server,
 * no recipe: the search's questions are answered from what the test has said.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SITUATION_H
#define SITUATION_H

#include <stdbool.h>
#include <stdint.h>

#include "recipe/deadlock/find_deadlock.h"

/* Forgets all. */
extern void situation_begin(void);

/* "1R 2W": in this order, a reader's node of session 1, and a writer's node of session 2. */
extern void queue(const char *name, const char *nodes);
extern void mutex(const char *semaphore, const char *sessions);

/* "1 2 -": permits of these sessions, and one without an owner. */
extern void permits(const char *semaphore, const char *sessions);

/* The session's last node of a lock's queue does not exist any more, but its report does. */
extern void forget_node(const char *name, int session);

/*
 * The session publishes a report, or another one: "x y" waits for locks, "%s" for the mutex
 * of a semaphore, "*s/2" has the mutex and waits for one of two permits.
 */
extern void waits(int session, const char *places);

/* Another session is the owner of the report's node. */
extern void owner_of_report(int session, uint64_t owner);

/*
 * The session waits locally behind another one, and holds locks: "x y-" one of them
 * shared, "s*" a permit.
 */
extern void local(int session, int behind, const char *held, bool only_for_place);
extern void holds(int session, int behind, const char *held);
extern void only_for_place(int session, int behind, bool value);

/*
 * Searches.  "victim 2: 1>2": session 2 must fail, and the shortest cycle; "place ..."; "...
 * and 3": the owners of other permits; "no report": the session has none; "nothing"; "too much".
 */
extern const char *found(int me);

/* What the verdict of the same search has to check. */
extern const char *checks(int me);

/* How many reports and queues did the last search read? */
extern int	reads(void);

/* The snapshot after all reading, for a test's own search; valid until the next one. */
extern ZklSnapshot *search(int me);

#endif							/* SITUATION_H */
