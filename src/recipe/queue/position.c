/*-------------------------------------------------------------------------
 *
 * position.c
 *		Finds in a children list a node's position, and whether its anchor exists.
 *
 * Sends nothing, and changes no state.  queue_order.c has the rules.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "internal.h"

/* Returns the node's position, given what the session holds in the queue already. */
ZklPosition
zkl__node_position(const ZklNode *node, const ZklResult *list, const char **other)
{
	const ZklNode *anchor = zkl__on_anchor_needed(node);
	const char *mine[3] = {node->name};
	int			n_mine = 1;

	if (anchor)
	{
		mine[n_mine++] = anchor->name;
		if (anchor->priv->new_name[0] != '\0')
			mine[n_mine++] = anchor->priv->new_name;
	}
	return zkl_position(list->children, list->n_children, mine, n_mine,
						node->upgrade, other);
}

/* Returns whether another client deleted the reader node that the upgrade builds on. */
bool
zkl__node_has_lost_anchor(const ZklNode *node, const ZklResult *list)
{
	const ZklNode *anchor = node->upgrade ? zkl__on_anchor_needed(node) : NULL;

	for (int i = 0; anchor && i < list->n_children; i++)
		if (strcmp(list->children[i], anchor->name) == 0 ||
			strcmp(list->children[i], anchor->priv->new_name) == 0)
			return false;
	return node->upgrade;
}

/*
 * For deadlock detection: readers behind a writer wait for it, and not for readers before it.
 * A list that has become old is no harm: a reader before the node can only leave.
 */
void
zkl__node_note_readers(ZklNode *node, const ZklResult *list)
{
	ZklContender other;

	node->follows_reader = false;
	for (int i = 0; node->mode == ZKL_MODE_EXCLUSIVE && i < list->n_children; i++)
		if (zkl_parse_child(list->children[i], &other) && !other.writer &&
			zkl_is_before(other.number, list->children[i], node->number, node->name))
			node->follows_reader = true;
}
