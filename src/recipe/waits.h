/*-------------------------------------------------------------------------
 *
 * waits.h
 *		A long wait: telling the others, and looking for deadlocks.
 *
 *		waits.c			the node below <root>/waits
 *		tale.c			... what it says
 *		look.c			what the nodes of all say
 *		exam.c			whether that is still true
 *
 * A part of internal.h's world: everything here is called with the session's
 * mutex held.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WAITS_H
#define ZKL_WAITS_H

#include "internal.h"
#include "wait_name.h"

/* One node whose name ends with the server's number. */
typedef struct ZklOldNode
{
	struct ZklOldNode *next;
	char		name[];
} ZklOldNode;

typedef struct ZklExam ZklExam;

/* Another participant's node that was removed, so that its owner looks again. */
typedef struct ZklQuestion
{
	uint64_t	session;
	char	   *name;
} ZklQuestion;

/* The long waits of a session, from the first one on. */
struct ZklWaits
{
	/* what is to be told */
	ZklRequest *request;		/* whose wait it is; NULL: nothing is told */
	uint64_t	wait;			/* counts the waits */
	uint64_t	version;		/* ... and what is told of one */
	bool		claims;			/* to be the one who gives way */
	char	   *edges;			/* needs and dependents, as in the name */
	char	   *data;
	int			data_len;
	char	   *prefix;			/* of the node to be made, without the number */

	/* what there is */
	char	   *path;			/* <root>/waits */
	char	   *name;			/* the node, once made with this prefix */
	ZklOldNode *old;			/* to be removed */
	bool		unknown;		/* there may be more of ours */
	int			attempts;		/* to make it, in a row, without a parent */
	bool		refused;		/* the ensemble does not want it */
	ZklCall    *asked;
	ZklCall    *watching;		/* the read that sets the watch on the node */
	bool		is_watched;
	uint64_t	n_questions;	/* how often it was doubted */
	bool		is_questioned;	/* ... and the owner has not answered yet */

	/* looking */
	bool		look_wanted;
	ZklCall    *looking;
	int64_t		next_look_ms;
	int			pause_ms;		/* between the last look and the next */
	uint64_t   *suspects;		/* with a claim: who takes part, ascending */
	int			n_suspects;
	ZklQuestion *questions;		/* with a claim: to all others of them, once asked */
	int			n_asked;
	int64_t		asked_ms;
	int64_t		doubted_ms;		/* when an exam last found nothing */
	bool		keeps_place;	/* as seen when the exam began; see ZklDeadlock */
	ZklExam    *exam;
	ZklDeadlock *found;
};

/* waits.c */
extern void zkl__waits_drive(ZklSession *session);
extern void zkl__waits_reconnected(ZklSession *session);
extern void zkl__waits_watch_fired(ZklSession *session, const char *path);
extern void zkl__waits_claim(ZklSession *session, bool claims);
extern void zkl__waits_doubt(ZklSession *session);
extern void zkl__waits_end(ZklRequest *request);
extern void zkl__waits_free(ZklSession *session);

/* tale.c */
extern bool zkl__tale_is_settled(const ZklRequest *request);
extern void zkl__tale_edges(ZklText *edges, const ZklRequest *request,
							const ZklTale *tale);
extern void zkl__tale_data(ZklText *data, const ZklRequest *request,
						   const ZklTale *tale);

/* look.c */
extern void zkl__look_drive(ZklSession *session);
extern void zkl__look_later(ZklSession *session, int ms);
extern void zkl__look_forget(ZklWaits *w);

/* exam.c */
extern void zkl__exam_begin(ZklSession *session, const ZklWaitPicture *picture);
extern void zkl__exam_free(ZklExam *exam);

#endif							/* ZKL_WAITS_H */
