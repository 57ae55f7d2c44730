/*-------------------------------------------------------------------------
 *
 * wait_name.h
 *		Names of the wait reports below <root>/waits, and their parser.
 *
 * Each report's edges of the wait-for graph are in its name, because one
 * getChildren then returns the whole graph as of one moment.
 *
 *	<session>.<wait>.<version>.<w or c>.<node sets>.<local waiters>.<number>
 *
 * - w: a wait; c: a wait whose session claims to be the victim.
 * - Node sets are separated by ","; the session waits for one member of each
 *	 set.  The members of a set are joined by "+".
 * - Local waiters, separated by ",", are sessions that wait for this session in
 *	 the lock manager of their common server.
 * - A "p" before a node set or local waiter marks a wait for a place in a queue
 *	 only: if the other session gave up its place, the waiter would still wait
 *	 for the sessions before it.
 * - The sequence number is decimal, all other numbers are hexadecimal.
 *
 * Pure functions: no I/O, no state, any thread.  They allocate.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WAIT_NAME_H
#define ZKL_WAIT_NAME_H

#include <stdbool.h>
#include <stdint.h>

#include "graph.h"

/* Edges beyond this length are left out, which can only hide a deadlock. */
#define ZKL_WAIT_NAME_MAX 60000

#define ZKL_WAIT_FOR_PLACE "p"

/* Bytes of one session in a name, with the separator. */
#define ZKL_WAIT_ID_SIZE 17

/*
 * Bounds of a search, in reports and in bytes of their names.  Any client that
 * can write below <root>/waits could otherwise make a search arbitrarily long.
 */
#define ZKL_WAITS_MAX 10000
#define ZKL_WAITS_MAX_BYTES 2000000

/* Names of children, in one allocation. */
typedef struct ZklNames
{
	int			n;
	const char *names[];
} ZklNames;

/*
 * Returns a malloc'd copy, or NULL if memory is exhausted or a limit is exceeded;
 * *too_many is true in the latter case.
 */
extern ZklNames *zkl_names_copy(const char *const *names, int n, int max_names,
								size_t max_bytes, bool *too_many);

/* A growing string; "failed" is set once memory was exhausted. */
typedef struct ZklText
{
	char	   *text;
	int			length;
	int			size;
	bool		failed;
} ZklText;

extern void zkl_text_add(ZklText *t, const char *format,...)
			__attribute__((format(printf, 2, 3)));

typedef struct ZklWaitNode
{
	const char *name;			/* points into the children */
	uint64_t	session;
	uint64_t	wait;
	bool		is_victim_claim;
	int32_t		number;
	int			first_node_set; /* of its own, in ZklWaitReports.node_sets */
	int			n_node_sets;
	int			n_local_waiters;	/* whose node sets follow, one each */
} ZklWaitNode;

/* All reported waits: the newest node of each session. */
typedef struct ZklWaitReports
{
	ZklWaitNode *nodes;			/* ordered by session */
	int			n;
	ZklNodeSet *node_sets;		/* source: index of the node that contains it */
	int			n_node_sets;
	uint64_t   *ids;			/* memory behind any_of of the node sets */
	int			n_ids;
} ZklWaitReports;

/*
 * Reads a hexadecimal number of up to 16 digits as printf() writes it, so without leading
 * zeros, and moves *p behind it.  Returns false if there is none.
 */
extern bool zkl_read_hex(const char **p, uint64_t *value);

/* Parses the names, skipping malformed ones.  Returns false if memory is exhausted. */
extern bool zkl_reports_read(const char *const *children, int n_children,
							 ZklWaitReports *reports);
extern void zkl_reports_free(ZklWaitReports *reports);

/* Returns the session's node, or NULL. */
extern const ZklWaitNode *zkl_reports_find(const ZklWaitReports *reports,
										   uint64_t session);

/* Was the first node created before the second one? */
extern bool zkl_wait_is_earlier(const ZklWaitNode *a, const ZklWaitNode *b);

/* Is this the name of a report of this session? */
extern bool zkl_is_wait_of(const char *name, uint64_t session);

#endif							/* ZKL_WAIT_NAME_H */
