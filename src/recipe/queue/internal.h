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

/* nodes.c */
extern uint32_t zkl__path_hash(const char *path, size_t length);
extern bool zkl__node_answered(ZklNode *node, const ZklCall *call, const ZklResult *result);
extern void zkl__node_unwant(ZklNode *node);
extern void zkl__node_gone(ZklNode *node);

/* queue_lock.c */
extern void zkl__node_watch_fired(ZklNode *node, const char *path);

/* list_elision.c */
extern bool zkl__elision_proven(const ZklNode *node);

/* leave.c */
extern void zkl__node_send_delete(ZklNode *node);

/* move.c */
extern void zkl__node_send_move(ZklNode *node);

/* empty_parents.c */
extern void zkl__empty_parents_add(const ZklNode *node);

#endif							/* ZKL_QUEUE_INTERNAL_H */
