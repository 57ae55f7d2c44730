/*-------------------------------------------------------------------------
 *
 * tale.c
 *		What is told of a long wait: the name and the data of its node.
 *
 * Reads the request and what its owner says, changes nothing.  Called by
 * waits.c only.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <string.h>

#include "waits.h"

/* Text on its way into a line: what would end it is replaced. */
static void
add_field(ZklText *t, const char *text)
{
	int			start = t->length;

	zkl_text_add(t, "\t%s", text);
	for (int i = start + 1; !t->failed && i < t->length; i++)
		if ((unsigned char) t->text[i] < ' ')
			t->text[i] = '?';
}

static bool
is_waiting(const ZklNode *node)
{
	return node->state == NODE_READING || node->state == NODE_WAITING;
}

/* Not while a node is on its way from one state to another. */
bool
zkl__tale_is_settled(const ZklRequest *request)
{
	bool		any = false;

	for (int i = 0; i < request->n; i++)
	{
		const ZklNode *node = request->nodes[i];

		if (is_waiting(node))
			any = true;
		else if (node->state != NODE_HELD && node->state != NODE_STAMPING)
			return false;
	}
	return any;
}

static void
add_needs(ZklText *edges, const ZklRequest *request)
{
	int			start = edges->length;

	for (int i = 0; i < request->n; i++)
	{
		const ZklNode *node = request->nodes[i];

		for (int j = 0; is_waiting(node) && j < node->n_blockers; j++)
			if (edges->length < ZKL_WAIT_NAME_MAX)
				zkl_text_add(edges, "%s%" PRIx64, edges->length > start ? "," : "",
							 node->blockers[j]);
	}
}

static void
add_dependents(ZklText *edges, const ZklTale *tale)
{
	zkl_text_add(edges, ".");
	for (int i = 0; i < tale->n_dependents; i++)
		if (edges->length < ZKL_WAIT_NAME_MAX)
			zkl_text_add(edges, "%s%" PRIx64, i ? "," : "",
						 (uint64_t) tale->dependents[i].session_id);
}

/* The part of the name that says who waits for whom. */
void
zkl__tale_edges(ZklText *edges, const ZklRequest *request, const ZklTale *tale)
{
	zkl_text_add(edges, tale->n_dependents > 0 && tale->all_in_line ? "p." : ".");
	add_needs(edges, request);
	add_dependents(edges, tale);
}

/* What exam.c reads, a line each: who, for which locks, and who behind. */
void
zkl__tale_data(ZklText *data, const ZklRequest *request, const ZklTale *tale)
{
	size_t		root_length = strlen(request->session->root);

	zkl_text_add(data, "%" PRIx64 "\t%d", tale->instance, tale->pid);
	add_field(data, tale->server);
	for (int i = 0; i < request->n; i++)
	{
		const ZklNode *node = request->nodes[i];

		if (!is_waiting(node) || data->length > ZKL_WAIT_NAME_MAX)
			continue;
		zkl_text_add(data, "\n%c\t%s\t%s\t%s", node->upgrade ? 'u' : 'w',
					 node->lock_path + root_length + 1, node->name,
					 node->mode == ZKL_MODE_EXCLUSIVE ? "exclusive" : "shared");
		add_field(data, tale->locks[node->index]);
	}
	for (int i = 0; i < tale->n_dependents; i++)
	{
		if (data->length > ZKL_WAIT_NAME_MAX)
			continue;
		zkl_text_add(data, "\nd\t%" PRIx64 "\t%d",
					 (uint64_t) tale->dependents[i].session_id,
					 tale->dependents[i].pid);
		add_field(data, tale->dependents[i].waits_for);
	}
}
