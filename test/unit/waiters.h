/*-------------------------------------------------------------------------
 *
 * waiters.h
 *		The parties of a scene as backends of servers: who waits for whom in
 *		the lock manager of a server, and what they tell of it.
 *
 * The truth about who waits for whom is taken from the nodes in the fake
 * ensemble and from what the test said, not from what was told.
 *
 *-------------------------------------------------------------------------
 */
#ifndef WAITERS_H
#define WAITERS_H

#include "scene.h"

#define WAITS "/zklock/waits"

/* Forgets all local waits; "servers" has a letter for each party. */
extern void waiters_begin(const char *servers);

/* The party waits for another of its server, or for nobody (NULL). */
extern void wait_locally(Party *party, Party *other);
extern Party *waits_locally_for(const Party *party);

/* The same for the place in a lock's queue that the other waits in itself. */
extern void wait_in_line(Party *party, Party *other);
extern bool waits_in_line(const Party *party);

/* What the glue does now and then for a party that waits; what came of it. */
extern const ZklDeadlock *tell(Party *party);

/* All who wait tell, a few times, with time for everything in between. */
extern void tell_all(void);

/* The party's verdict in tell_all(), as pids: "2>3>4"; empty: none. */
extern const char *verdict_of(const Party *party);

/* How many waits are told, by this party or by all (NULL). */
extern int	told_by(const Party *party);

/*
 * What the glue does when the descriptor is readable: the party looks whether it
 * has to give way, and does.  Who is told so must truly be in a deadlock then.
 */
extern void heed(Party *party);

/* All whose descriptor is readable do. */
extern void wake_owners(void);

/* How many gave way since waiters_begin(), and how many of them wrongly. */
extern int	victims(void);
extern int	false_alarms(void);

/* The party lets go of everything, and who waits for its rows goes on. */
extern void end_transaction(Party *party);

/* Its session is over, and with it what it held; its transaction fails. */
extern void begin_anew(Party *party);

/* When nothing new happens but that those told so give way, no deadlock stays. */
extern bool deadlocks_end(void);

/*
 * In truth: is the party among some who all wait for each other, and none of
 * whom can go on?  And would it be if those of a set, a bit for each party, had
 * given way?
 */
extern bool is_truly_deadlocked(const Party *party);
extern bool would_be_deadlocked(const Party *party, unsigned gone);

#endif							/* WAITERS_H */
