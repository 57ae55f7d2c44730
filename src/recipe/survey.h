/*-------------------------------------------------------------------------
 *
 * survey.h
 *		What survey.c, which reads, survey_places.c, which knows where, and
 *		survey_order.c, which puts in order what was read, share; session.c
 *		counts a survey's calls.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SURVEY_H
#define ZKL_SURVEY_H

#include "internal.h"

/* A lock or semaphore.  There may be several of one name, for its several znodes. */
typedef struct ZklPlace
{
	struct ZklPlace *next;
	ZklKind		kind;
	char	   *name;			/* encoded */
	int			size;			/* of a semaphore; 0: not known */
} ZklPlace;

/* What the children of a znode are, in the order in which they are told. */
typedef enum ZklRole
{
	ROLE_CONTENDER,				/* for a lock */
	ROLE_LEASE,					/* a permit, Curator's */
	ROLE_POOL,					/* a permit, kazoo's */
	ROLE_WAITER,				/* for a permit, Curator's */
	ROLE_KAZOO_WAITER
} ZklRole;

typedef enum ZklItemKind
{
	ITEM_LOCKS,					/* list: of locks */
	ITEM_SEMAPHORES,			/* list: of semaphores */
	ITEM_QUEUE,					/* list: of nodes that have its role */
	ITEM_SEMAPHORE,				/* list: what a semaphore consists of */
	ITEM_SIZE,					/* data: of a semaphore */
	ITEM_NODE,					/* data: of a holder or waiter */
	ITEM_REVOKE					/* set the data of a holder */
} ZklItemKind;

/* One znode to be asked about. */
struct ZklItem
{
	ZklItem    *next;			/* in survey->items */
	ZklItem    *next_todo;
	ZklItemKind kind;
	ZklRole		role;
	ZklPlace   *place;
	char	   *path;
	char	   *data;
	bool		is_seen;		/* NODE: it is there */
	int32_t		version;		/* of the data read */
	bool		is_unknown;		/* REVOKE: asked, and the answer was lost */
	bool		is_anchor;		/* a granted upgrade builds on it */
	ZklEntry	entry;
};

struct ZklSurvey
{
	ZklSession *session;
	ZklSurvey  *prev;			/* in session->surveys */
	ZklSurvey  *next;
	ZklStatus	status;
	int			raw_code;
	bool		ended;			/* the owner forgot it; freed with its last call */
	int			calls;
	ZklCall    *syncing;
	bool		is_synced;
	int			in_flight;		/* items asked about */
	bool		revokes;		/* who holds shall be asked to let go */
	bool		is_revoking;
	ZklItem    *items;
	int			n_items;
	ZklItem    *todo;			/* to be asked about, oldest first */
	ZklItem   **todo_end;
	ZklPlace   *places;
	int			n_denied;
	int			n_asked;
	ZklEntry   *entries;
	int			n_entries;
};

/* survey.c: the survey is over, unless it was already. */
extern void zkl__survey_decide(ZklSurvey *survey, ZklStatus status, int raw_code);

/* ... to be asked about: the child of a path, or the path itself. */
extern void zkl__survey_add(ZklSurvey *survey, ZklItemKind kind, ZklRole role,
							ZklPlace *place, const char *path, const char *child);

/* survey_places.c: where to begin; one lock or semaphore, or with NULL as name all. */
extern void zkl__survey_begin(ZklSurvey *survey, ZklKind kind, const char *name);

/* ... and where an answer leads. */
extern void zkl__survey_lead_on(ZklSurvey *survey, ZklItem *item,
								const ZklResult *result);

/* survey_order.c: decides who is granted and makes the entries of what was seen; false: no memory. */
extern bool zkl__survey_order(ZklSurvey *survey);

#endif							/* ZKL_SURVEY_H */
