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

/* In its turn at a semaphore that is full? */
static bool
is_waiting_for_permit(const ZklRequest *request)
{
	return request->permit && zkl__permit_in_turn(request) &&
		request->permit->seen == SEEN_FULL;
}

/* Nodes that are given up and not gone yet: others need not wait for them to the end. */
static bool
has_debts(const ZklSession *session)
{
	for (const ZklNode *node = session->nodes; node; node = node->next)
		if (!node->wanted && node->state != NODE_GONE)
			return true;
	return false;
}

/* Not while a node is on its way from one state to another. */
bool
zkl__tale_is_settled(const ZklRequest *request)
{
	bool		any = is_waiting_for_permit(request);

	if (has_debts(request->session))
		return false;
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

/* All who have permits, any of whom may make room; or nothing. */
static void
add_owners(ZklText *edges, const ZklPermit *permit)
{
	if (edges->length + permit->n_owners * ZKL_WAIT_ID_SIZE > ZKL_WAIT_NAME_MAX)
		return;
	for (int i = 0; i < permit->n_owners; i++)
		zkl_text_add(edges, "%s%" PRIx64, i ? "+" : "", permit->owners[i]);
}

/* In a semaphore's queue whoever is first waits for the permits. */
static void
add_needs(ZklText *edges, const ZklRequest *request)
{
	const char *in_line = request->permit ? ZKL_WAIT_IN_LINE : "";
	int			start = edges->length;

	if (is_waiting_for_permit(request))
		add_owners(edges, request->permit);
	for (int i = 0; i < request->n; i++)
	{
		const ZklNode *node = request->nodes[i];

		for (int j = 0; is_waiting(node) && j < node->n_blockers; j++)
			if (edges->length < ZKL_WAIT_NAME_MAX)
				zkl_text_add(edges, "%s%s%" PRIx64, edges->length > start ? "," : "",
							 in_line, node->blockers[j]);
	}
}

static void
add_dependents(ZklText *edges, const ZklTale *tale)
{
	zkl_text_add(edges, ".");
	for (int i = 0; i < tale->n_dependents; i++)
		if (edges->length < ZKL_WAIT_NAME_MAX)
			zkl_text_add(edges, "%s%s%" PRIx64, i ? "," : "",
						 tale->dependents[i].in_line ? ZKL_WAIT_IN_LINE : "",
						 (uint64_t) tale->dependents[i].session_id);
}

/* The part of the name that says who waits for whom. */
void
zkl__tale_edges(ZklText *edges, const ZklRequest *request, const ZklTale *tale)
{
	zkl_text_add(edges, ".");
	add_needs(edges, request);
	add_dependents(edges, tale);
}

/* What a node in a queue is for. */
static const char *
wish_text(const ZklRequest *request, const ZklNode *node)
{
	return request->permit ? "a permit of semaphore"
		: node->mode == ZKL_MODE_EXCLUSIVE ? "exclusive lock" : "shared lock";
}

/* Where the request waits for permits, and what to count there. */
static void
add_permit(ZklText *data, const ZklRequest *request, const ZklTale *tale)
{
	const ZklPermit *permit = request->permit;

	zkl_text_add(data, "\np\t%s\t%d\t%d\t%s",
				 permit->lease_path + strlen(request->session->root) + 1,
				 zkl__permit_limit(permit), permit->n_own,
				 wish_text(request, request->nodes[0]));
	add_field(data, tale->locks[0]);
}

static void
add_stand(ZklText *data, const ZklRequest *request, const ZklNode *node,
		  const ZklTale *tale)
{
	zkl_text_add(data, "\n%c\t%s\t%s\t%s", node->upgrade ? 'u' : 'w',
				 node->lock_path + strlen(request->session->root) + 1, node->name,
				 wish_text(request, node));
	add_field(data, tale->locks[node->index]);
}

/* What exam.c reads, a line each: who, for which locks, and who behind. */
void
zkl__tale_data(ZklText *data, const ZklRequest *request, const ZklTale *tale)
{
	zkl_text_add(data, "%" PRIx64 "\t%d", tale->instance, tale->pid);
	add_field(data, tale->server);
	if (is_waiting_for_permit(request))
		add_permit(data, request, tale);
	for (int i = 0; i < request->n; i++)
		if (is_waiting(request->nodes[i]) && data->length <= ZKL_WAIT_NAME_MAX)
			add_stand(data, request, request->nodes[i], tale);
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
