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
 *		cycle_check.h		verifies a deadlock against the queues
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

/* A node of this session that is to be deleted; the name includes the sequence number. */
typedef struct ZklOldNode
{
	struct ZklOldNode *next;
	char		name[];
} ZklOldNode;

typedef struct ZklCycleCheck ZklCycleCheck;

/* The wait report of a session. */
typedef struct ZklWaits
{
	/* the report that is wanted */
	ZklRequest *request;		/* that waits; NULL: no report is wanted */
	uint64_t	wait;			/* number of the wait in this session */
	uint64_t	version;		/* number of the report, across all waits */
	bool		claims;			/* the node is a victim claim */
	char	   *edges;			/* node sets and local waiters, as in the name */
	char	   *data;
	int			data_len;
	int64_t		composed_ms;	/* when edges and data last changed */
	char	   *prefix;			/* of the node to create, without the sequence number */

	/* the nodes that exist */
	char	   *name;			/* the node, once created with this prefix */
	ZklOldNode *old;			/* nodes to delete */
	ZklOldNode *last_old;		/* valid unless old is NULL */
	unsigned	n_refused;		/* deletes that the ensemble refused; may wrap */
	bool		unknown;		/* more nodes of this session may exist */
	int			attempts;		/* creates in a row that found no parent */
	bool		refused;		/* the ensemble refused the node */
	ZklCall    *state_call;
	ZklCall    *watch_call;		/* the read that sets the watch on the node */
	bool		is_watched;
	bool		is_probed;		/* a probe came, and the owner has not reported since */

	/* the search */
	uint64_t	era;			/* incremented when everything read so far is outdated */
	bool		search_wanted;
	ZklCall    *list_call;
	ZklNames   *seen;			/* the listed reports, until the owner's thread takes them */
	bool		is_busy;		/* the owner's thread works on reports or a cycle check */
	int64_t		next_search_ms;
	int			pause_ms;		/* between the last search and the next one */
	uint64_t   *suspects;		/* of a claim: the deadlock's members, ascending */
	int			n_suspects;
	bool		has_probed;		/* of a claim: it has probed the other suspects */
	int			n_probed;		/* how many of them had a report then */
	int64_t		active_ms;		/* when it last reported, probed others, or reconnected */
	int64_t		next_check_ms;	/* no cycle check before this time */
	int			check_pause_ms; /* between the last check that confirmed nothing and this */
	bool		keeps_place;	/* when the cycle check began; see ZklDeadlock */
	ZklCycleCheck *check;
} ZklWaits;

static inline ZklWaits *
zkl__waits(const ZklSession *session)
{
	return zkl__state(session, ZKL_PART_WAITS);
}

/* waits.c */
extern const ZklSessionPart zkl__waits_part;
extern void zkl__waits_claim(ZklSession *session, bool claims);
extern void zkl__waits_note_probe(ZklSession *session);

/* wait_node.c */
extern void zkl__waits_drive(ZklSession *session);
extern void zkl__waits_withdraw(ZklSession *session);
extern void zkl__waits_free_nodes(ZklWaits *w);

/* wait_report.c */
extern bool zkl__report_is_settled(const ZklRequest *request);
extern void zkl__report_edges(ZklText *edges, const ZklRequest *request,
							  const ZklWaitReport *report);
extern void zkl__report_data(ZklText *data, const ZklRequest *request,
							 const ZklWaitReport *report);

/* deadlock_search.c */
extern ZklDeadlock *zkl__search_judge(ZklRequest *request, const ZklWaitReport *report);
extern void zkl__search_drive(ZklSession *session);
extern void zkl__search_forget(ZklWaits *w);

#endif							/* ZKL_WAITS_H */
