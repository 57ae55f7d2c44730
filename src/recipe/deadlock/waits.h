/*-------------------------------------------------------------------------
 *
 * waits.h
 *		Wait reports: publishing long waits, and searching them for deadlocks.
 *
 * No server sees the waits of another one, so a session that waits for long
 * publishes its wait as an ephemeral node below <root>/waits.
 *
 *		waits.c				decides which report is wanted
 *		wait_report.c		composes its name and data
 *		wait_node.c			creates, replaces and removes the node
 *		wait_name.h			parses the names of all nodes
 *		deadlock_search.c	searches them, claims to be the victim, probes the others
 *		graph.h, victim.h	is there a deadlock, and which session fails? (pure)
 *		cycle_check.h		verifies a deadlock by the data of the reports
 *
 * deadlock_search.c, wait_node.c and waits.c call each other, because a search changes the
 * report (a claim), a change replaces the node, and a new node starts a search.
 *
 * Everything here is called with the session's mutex held, except
 * zkl__search_judge().
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WAITS_H
#define ZKL_WAITS_H

#include "recipe/semaphore/semaphore.h"
#include "wait_name.h"

/* A local waiter's holds in the data: this sign if unknown, else kind and key of each. */
#define ZKL_HELD_UNKNOWN '*'
#define ZKL_HELD_SIZE 9

/* The first field of a local waiter's line in the data; of other lines, a ZklHeldKind. */
#define ZKL_WAIT_LOCAL 'd'

typedef struct ZklCycleCheck ZklCycleCheck;

/* The wait report of a session. */
typedef struct ZklWaits
{
	/* the report that is wanted */
	ZklRequest *request;		/* that waits; NULL: no report is wanted */
	uint64_t	wait;			/* number of the wait in this session */
	uint64_t	version;		/* number of the report, across all waits */
	bool		is_victim_claim;	/* the node is a victim claim */
	char	   *edges;			/* node sets and local waiters, as in the name */
	char	   *data;
	int			data_len;
	int64_t		composed_ms;	/* when edges and data last changed */
	char	   *prefix;			/* of the node to create, without the sequence number */

	/* the nodes that exist */
	char	   *name;			/* the node, once created with this prefix */
	bool		unknown;		/* other nodes of this session may exist */
	int			attempts;		/* creates in a row that found no parent */
	bool		refused;		/* the ensemble refused the node */
	ZklCall    *state_call;
	ZklCall    *watch_call;		/* the read that sets the watch on the node */
	bool		is_watched;
	bool		is_probed;		/* withdrawn to read all again, and the owner has not reported since */

	/* the search */
	uint64_t	era;			/* incremented when everything read so far is outdated */
	ZklCall    *children_call;
	ZklNames   *seen;			/* the listed reports, until the owner's thread takes them */
	bool		is_busy;		/* the owner's thread works on reports or a cycle check */
	int64_t		next_search_ms; /* 0: at the slow pace */
	int			pause_ms;		/* between the last search and the next one */
	uint64_t   *suspects;		/* of a claim: the deadlock's members, ascending */
	int			n_suspects;
	uint64_t   *suspect_waits;	/* of a claim: the number of each one's wait; 0: no report */
	bool		has_probed;		/* of a claim: it has probed the other suspects */
	int64_t		active_ms;		/* when it last reported, probed others, or reconnected */
	int64_t		next_victim_claim_ms;	/* no claim before this time, after a failed one */
	int			victim_claim_pause_ms;	/* the pause after the last failed one */
	ZklCycleCheck *check;
} ZklWaits;

static inline ZklWaits *
zkl__waits(const ZklSession *session)
{
	return zkl__state(session, ZKL_STATE_WAITS);
}

/* waits.c */
extern const size_t zkl__waits_size;
extern void zkl__waits_connected(ZklSession *session);
extern void zkl__waits_watched(ZklSession *session, const char *path);
extern void zkl__waits_free(ZklSession *session);
extern void zkl__waits_set_victim_claim(ZklSession *session, bool is_victim_claim);
extern void zkl__waits_note_probe(ZklSession *session);

/* wait_node.c */
extern void zkl__waits_drive(ZklSession *session);
extern void zkl__waits_withdraw(ZklSession *session);

/* wait_report.c */
extern bool zkl__report_is_settled(const ZklRequest *request);
extern void zkl__report_compose(ZklText *edges, ZklText *data, const ZklRequest *request,
								const ZklWaitReport *report);

/* deadlock_search.c */
extern ZklDeadlock *zkl__search_judge(ZklSession *session);
extern void zkl__search_drive(ZklSession *session);
extern void zkl__search_forget(ZklWaits *w);

#endif							/* ZKL_WAITS_H */
