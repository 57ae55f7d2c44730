/*-------------------------------------------------------------------------
 *
 * walk.h
 *		What random walks over a scene share: the dice, what chance does to
 *		requests and to connections, and the round of all seeds.
 *
 * The program's arguments: [first seed [number of seeds]].
 *
 *-------------------------------------------------------------------------
 */
#ifndef WALK_H
#define WALK_H

#include "scene.h"

/* 0 to n - 1. */
extern int	dice(int n);

/*
 * Asks for what the party does not hold yet of so many of the names; what is
 * decided is forgotten before.
 */
extern void ask_by_chance(Party *party, const char *const *names, int n_names,
						  int n_wanted, bool try_only);

/* Breaks the connection, or lets something go wrong soon; or heals it. */
extern void shake_connection(Party *party, bool with_expiry);

/*
 * Walks once for each seed, n_seeds of them unless the arguments say otherwise.
 * "walk" begins a scene and returns what went wrong, or NULL; the scene is ended
 * here.  One test: "%u random schedules" and the promise.
 */
extern void walk_all(int argc, char **argv, unsigned n_seeds,
					 const char *(*walk) (unsigned seed), const char *promise);

#endif							/* WALK_H */
