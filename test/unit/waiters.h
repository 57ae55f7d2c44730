/*-------------------------------------------------------------------------
 *
 * waiters.h
 *		The parties of a scene as backends of servers: which of them wait for
 *		each other in a server's lock manager, and the wait reports they publish.
 *
 * The true wait-for graph is derived from the nodes in the fake ensemble and from
 * the test's own calls, not from the reports.
 *
 *-------------------------------------------------------------------------
 */
#ifndef WAITERS_H
#define WAITERS_H

#include "owner.h"

#define WAITING "/zklock/waiting"

/* Forgets all local waits; "servers" has one letter for each party. */
extern void waiters_begin(const char *servers);

/* The party waits for another party of its server, or for none (NULL). */
extern void wait_locally(Party *party, Party *other);
extern Party *waits_locally_for(const Party *party);

/* Does the party wait, so that it does nothing else? */
extern bool is_busy(const Party *party);

/* The party waits behind another waiter in PostgreSQL's queue for a lock. */
extern void wait_behind_waiter(Party *party, Party *other);
extern bool waits_behind_waiter(const Party *party);

/* Does what the backend does when it wakes up (owner.h); the caller frees the result. */
extern const ZklDeadlock *publish(Party *party);

/* The same, and keeps the result for deadlock_of(); is the party the victim of a deadlock? */
extern bool is_victim_now(Party *party);

/* Calls that until nothing more happens without time passing. */
extern void publish_at_once(Party *party);

/* All waiters publish several times; in between everything runs. */
extern void publish_all(void);

/* The party's verdict in publish_all(), or NULL; and as pids: "2>3>4", empty: none. */
extern const ZklDeadlock *deadlock_of(const Party *party);
extern const char *verdict_of(const Party *party);

/* Returns what a session of a cycle waits for; static memory. */
extern const char *wait_text(const ZklDeadlockEdge *edge);

/* How many wait reports do this party, or all parties (NULL), have?  Runs everything. */
extern int	reported_by(const Party *party);

/*
 * Does what the backend does when the descriptor is readable: if the party is the
 * victim, it fails.  Counts a false deadlock unless it truly is in a deadlock.
 */
extern void on_error(Party *party);

/* Calls on_error() for all parties whose descriptor is readable. */
extern void wake_owners(void);

/* How many victims since waiters_begin(), and how many of them in no deadlock? */
extern int	victims(void);
extern int	false_deadlocks(void);

/* The party releases everything; the waiters for its rows continue. */
extern void end_transaction(Party *party);

/* The party's session expires, and its transaction fails. */
extern void begin_again(Party *party);

/* Do all deadlocks end, in half a minute, if nothing happens except that victims fail? */
extern bool deadlocks_end(void);

/*
 * Is the party truly in a set of parties that all wait for each other, none of
 * which can proceed?  And would it be after the parties in "gone", one bit each,
 * had failed?
 */
extern bool is_truly_deadlocked(const Party *party);
extern bool would_be_deadlocked(const Party *party, unsigned gone);

/*
 * Would the party's failure leave nothing of some deadlock, or free another party
 * from all its deadlocks?
 */
extern bool breaks_deadlock(const Party *party);

#endif							/* WAITERS_H */
