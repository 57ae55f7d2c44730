/*-------------------------------------------------------------------------
 *
 * walk.h
 *		The common part of random walks over a scene: the dice, random requests and
 *		connection faults, and the loop over the seeds.
 *
 * The program's arguments: [first seed [number of seeds]].
 *
 *-------------------------------------------------------------------------
 */
#ifndef WALK_H
#define WALK_H

#include "scene.h"

/* Returns 0 to n - 1. */
extern int	dice(int n);

/*
 * Requests some of the names that the party does not hold yet; forgets its decided
 * requests first.
 */
extern void ask_randomly(Party *party, const char *const *names, int n_names,
						 int n_wanted, bool non_blocking);

/*
 * Requests a permit; the first semaphore has one, the next one two, and so on.  A session
 * that has all permits requests none: it would wait for itself.
 */
extern void ask_permit_randomly(Party *party, const char *const *semaphores, int n_semaphores);

/* Breaks the connection, schedules a fault, or reconnects. */
extern void disturb_connection(Party *party, bool with_expiry);

/*
 * Walks once for each seed, n_seeds of them unless the arguments say otherwise.
 * "walk" begins a scene and returns what went wrong, or NULL; this function ends
 * the scene.  One test: "%u random schedules" and the promise.
 */
extern void walk_all(int argc, char **argv, unsigned n_seeds,
					 const char *(*walk) (unsigned seed), const char *promise);

#endif							/* WALK_H */
