/*-------------------------------------------------------------------------
 *
 * position.c
 *		Finds in a children list a node's position, its blockers, and whether its
 *		anchor exists.
 *
 * Sends nothing, and changes no state.  queue_order.c has the rules.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
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

/* For deadlock detection.  If memory is exhausted, a deadlock may stay hidden. */
void
zkl__node_note_blockers(ZklNode *node, const ZklResult *list)
{
	int			n_queue;
	ZklQueued  *queue = zkl_read_queue(list->children, list->n_children, &n_queue);

	free(node->blockers);
	node->blockers = malloc((size_t) list->n_children * sizeof(ZklBlocker));
	node->n_blockers = queue && node->blockers
		? zkl_blockers(queue, n_queue, node->name, node->upgrade, node->blockers) : 0;
	free(queue);
}
