/*-------------------------------------------------------------------------
 *
 * succession.c
 *		When a new node is known to be first without a list.
 *
 * A lock's znode counts the children that are made in it, and the server
 * numbers them by that count.  So when this session held number n with nobody
 * before it, and its next node there has number n + 1, then nothing was made in
 * between: whoever was there is behind n, and that is nobody, or was before it.
 *
 * Unless the znode was removed meanwhile, as the server does with an empty
 * container, and a new one has counted as far.  That takes more than n + 1
 * transactions: the removal and n + 1 nodes, before ours.  Every transaction of
 * the ensemble has the next id, so a czxid that is no more than n + 1 above the
 * former one excludes it.  What is known is forgotten with the connection, so
 * that no other leader, and no ensemble restored from a copy, can have counted.
 *
 * This supposes that no transaction makes two nodes in one queue, and that nobody
 * makes up a number that is still to come; no recipe of ours or of others does.
 * What is not proven here is listed.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* As many locks are remembered, at most; whose hashes meet displace each other. */
#define SLOTS 1024

/* The session's last node in a queue, before which there was nobody. */
struct ZklTurn
{
	int32_t		number;
	int64_t		czxid;
	bool		foreseen;		/* it was proven for this one, so no list is sent with the next */
	char		lock_path[];
};

/* FNV-1a. */
static ZklTurn **
slot_of(const ZklSession *session, const char *lock_path)
{
	uint32_t	hash = 2166136261u;

	for (const char *c = lock_path; *c; c++)
		hash = (hash ^ (unsigned char) *c) * 16777619u;
	return &session->turns[hash % SLOTS];
}

static const ZklTurn *
last_turn(const ZklNode *node)
{
	const ZklTurn *turn;

	if (node->session->turns == NULL || node->upgrade)
		return NULL;
	turn = *slot_of(node->session, node->lock_path);
	return turn && strcmp(turn->lock_path, node->lock_path) == 0 ? turn : NULL;
}

/* Is the node, which is still to be made, likely to be first by proof? */
bool
zkl__succession_foreseen(const ZklNode *node)
{
	const ZklTurn *turn = last_turn(node);

	return turn && turn->foreseen;
}

/* Was nobody before the node when it was made?  False if that is not known. */
bool
zkl__succession_proven(const ZklNode *node)
{
	const ZklTurn *turn = last_turn(node);

	return turn && turn->number < node->session->sequence_limit &&
		node->number == turn->number + 1 &&
		node->czxid > turn->czxid &&
		node->czxid - turn->czxid <= (int64_t) turn->number + 1;
}

/* The node is granted: is it one to go by? */
void
zkl__succession_note(const ZklNode *node)
{
	ZklSession *session = node->session;
	bool		proven = zkl__succession_proven(node);
	size_t		size = strlen(node->lock_path) + 1;
	ZklTurn   **slot;

	if (node->upgrade || node->is_lease ||
		!(proven || node->mode == ZKL_MODE_EXCLUSIVE))
		return;
	if (session->turns == NULL)
		session->turns = calloc(SLOTS, sizeof(ZklTurn *));
	if (session->turns == NULL)
		return;
	slot = slot_of(session, node->lock_path);
	if (last_turn(node) == NULL)
	{
		free(*slot);
		*slot = malloc(sizeof(ZklTurn) + size);
		if (*slot == NULL)
			return;
		memcpy((*slot)->lock_path, node->lock_path, size);
	}
	(*slot)->number = node->number;
	(*slot)->czxid = node->czxid;
	(*slot)->foreseen = proven;
}

/* The connection is another one. */
void
zkl__succession_forget(ZklSession *session)
{
	for (int i = 0; session->turns && i < SLOTS; i++)
		free(session->turns[i]);
	free(session->turns);
	session->turns = NULL;
}
