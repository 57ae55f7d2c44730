/*-------------------------------------------------------------------------
 *
 * victims.h
 *		Deadlocks in scenes: which sessions are victims, and whether that helps.
 *
 * Verbs for plays (play.h):
 *
 *		servers aab			(of all) the server of each party; the first step
 *		row B				waits for a row of another party of its server; without an argument: no more
 *		publish				reports its wait, and searches, as long as no time must pass
 *		reports 1			the wait reports of the party, or of all
 *		victim AB			(of all) who waits for long searches: one of these parties is a victim, and when it
 *							fails, all others continue, and no report is left; "none": there is no deadlock
 *
 *-------------------------------------------------------------------------
 */
#ifndef VICTIMS_H
#define VICTIMS_H

#include "play.h"
#include "waiters.h"

extern const PlayVerb deadlock_verbs[];

/* Begins a scene with these steps; "servers" has one letter for each party. */
extern void begin_waiters(const char *servers, const char *steps);

/*
 * Lets the owner go on for so many turns, or until a condition, while only its requests are
 * answered; returns whether it is a victim.
 */
extern bool owner_goes_on(Party *party, int n, bool (*until) (Party *party));

/* All parties with a verdict, as letters; static memory. */
extern const char *victims_are(void);

/* Same as "victim"; end the scene. */
extern void has_no_victim(const char *name);
extern void has_one_victim(const char *name, const char *allowed);

/* Another session rings the bell of the party. */
extern void ring(const Party *party);

#endif							/* VICTIMS_H */
