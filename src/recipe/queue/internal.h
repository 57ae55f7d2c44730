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
extern bool zkl__node_can_send(const ZklNode *node);
extern void zkl__node_set_name(ZklNode *node, const char *name);
extern void zkl__node_unwant(ZklNode *node);
extern void zkl__node_gone(ZklNode *node);

/* position.c */
extern ZklPosition zkl__node_position(const ZklNode *node, const ZklResult *list,
									  const char **other);
extern bool zkl__node_has_lost_anchor(const ZklNode *node, const ZklResult *list);
extern void zkl__node_note_blockers(ZklNode *node, const ZklResult *list);

/* list_elision.c */
extern bool zkl__elision_expected(const ZklNode *node);
extern bool zkl__elision_proven(const ZklNode *node);

/* empty_parents.c */
extern void zkl__empty_parents_add(const ZklNode *node);

/* leave.c */
extern void zkl__node_send_delete(ZklNode *node);

/* move.c */
extern void zkl__node_move(ZklNode *node, ZklNodeState state, int32_t number);
extern void zkl__node_send_move(ZklNode *node, ZklHandler handler);
extern void zkl__node_moved(ZklNode *node, const ZklResult *result);

#endif							/* ZKL_QUEUE_INTERNAL_H */
