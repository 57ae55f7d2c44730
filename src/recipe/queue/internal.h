/*-------------------------------------------------------------------------
 *
 * internal.h
 *		Declarations shared by the files of this folder only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_QUEUE_INTERNAL_H
#define ZKL_QUEUE_INTERNAL_H

#include "queue.h"

struct ZklNodePrivate
{
	ZklNode    *prev;			/* of node->next */
	ZklNode    *next_alike;		/* in the hash table of node_list.c */
	ZklNode   **link_alike;		/* the pointer to this node there */
	ZklNode    *next_marked;	/* in ZklQueues.first_marked */
	ZklNode    *next_collected; /* in ZklQueues.collected, then in the delete call's detail */
	ZklCall    *state_call;		/* whose answer this state waits for; CREATING: the list */
	bool		wanted;			/* not released, not given up */
	bool		has_asked;		/* the owners of nodes before, on this connection; false in WAITING: again */
	bool		lists_synced;	/* sync before each list: non-blocking and not first */
	bool		is_move_refused;	/* DOWNGRADING: still has its old name, until retried */
	bool		is_undeletable; /* LEAVING: an ACL forbids the delete, which was logged */
	bool		is_pending;		/* counted in ZklQueues.n_pending */
	bool		none_released;	/* no node of this server before it is a pending delete */
	bool		is_collected;	/* LEAVING: its delete waits for zkl__deletes_end() */
	char		new_name[ZKL_CHILD_NAME_SIZE];	/* MOVING_UP, DOWNGRADING: the name to move to */
	char	   *watched;		/* the predecessor, or the writer to move up to */
};

/* ask.c */
extern bool zkl__node_may_wait(const ZklNode *node, const char *predecessor,
							   const ZklResult *list);
extern bool zkl__node_is_refused(const ZklNode *node, const ZklResult *predecessor);

/* node_list.c */
extern bool zkl__node_answered(ZklNode *node, const ZklCall *call, const ZklResult *result);
extern bool zkl__node_can_send(const ZklNode *node);
extern void zkl__node_set_name(ZklNode *node, const char *name);
extern void zkl__node_unwant(ZklNode *node);

/* deletes.c */
extern void zkl__node_dispose(ZklNode *node);
extern void zkl__node_send_delete(ZklNode *node);

/* list_elision.c */
typedef enum ZklElision
{
	ZKL_ELISION_NONE,			/* list the queue */
	ZKL_ELISION_NEEDS_CZXID,
	ZKL_ELISION_FIRST
} ZklElision;

extern void zkl__elision_forget(ZklSession *session);
extern bool zkl__elision_expected(const ZklNode *node);
extern void zkl__elision_failed(const ZklNode *node);
extern ZklElision zkl__elision(const ZklNode *node);

/* empty_parents.c */
extern void zkl__empty_parents_add(const ZklNode *node);
extern void zkl__empty_parents_free(ZklSession *session);

/* move.c */
extern void zkl__node_move(ZklNode *node, ZklNodeEvent event, int32_t number);
extern void zkl__node_send_move(ZklNode *node, ZklHandler handler);
extern void zkl__node_moved(ZklNode *node, const ZklResult *result);

#endif							/* ZKL_QUEUE_INTERNAL_H */
