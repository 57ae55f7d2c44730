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

/* When so many locks are remembered all are forgotten, rather than one chosen. */
#define MAX_TURNS 4096
#define BUCKETS 1024

/* The session's last node in a queue, before which there was nobody. */
typedef struct Turn
{
	struct Turn *next;			/* in its bucket */
	int32_t		number;
	int64_t		czxid;
	bool		foreseen;		/* it was proven for this one, so no list is sent with the next */
	char		lock_path[];
} Turn;

struct ZklTurns
{
	int			n;
	Turn	   *buckets[BUCKETS];
};

/* FNV-1a. */
static Turn **
bucket_of(const ZklSession *session, const char *lock_path)
{
	uint32_t	hash = 2166136261u;

	for (const char *c = lock_path; *c; c++)
		hash = (hash ^ (unsigned char) *c) * 16777619u;
	return &session->turns->buckets[hash % BUCKETS];
}

static Turn *
last_turn(const ZklNode *node)
{
	Turn	   *turn = NULL;

	if (node->session->turns && !node->upgrade)
		turn = *bucket_of(node->session, node->lock_path);
	while (turn && strcmp(turn->lock_path, node->lock_path) != 0)
		turn = turn->next;
	return turn;
}

/* Is the node, which is still to be made, likely to be first by proof? */
bool
zkl__succession_foreseen(const ZklNode *node)
{
	const Turn *turn = last_turn(node);

	return turn && turn->foreseen;
}

/* Was nobody before the node when it was made?  False if that is not known. */
bool
zkl__succession_proven(const ZklNode *node)
{
	const Turn *turn = last_turn(node);

	return turn && turn->number < node->session->sequence_limit &&
		node->number == turn->number + 1 &&
		node->czxid > turn->czxid &&
		node->czxid - turn->czxid <= (int64_t) turn->number + 1;
}

static Turn *
turn_new(ZklSession *session, const char *lock_path)
{
	size_t		size = strlen(lock_path) + 1;
	Turn	   *turn = malloc(sizeof(Turn) + size);
	Turn	  **bucket;

	if (turn && session->turns && session->turns->n == MAX_TURNS)
		zkl__succession_forget(session);
	if (turn && session->turns == NULL)
		session->turns = calloc(1, sizeof(ZklTurns));
	if (turn == NULL || session->turns == NULL)
	{
		free(turn);
		return NULL;
	}
	memcpy(turn->lock_path, lock_path, size);
	bucket = bucket_of(session, lock_path);
	turn->next = *bucket;
	*bucket = turn;
	session->turns->n++;
	return turn;
}

/* The node is granted: is it one to go by? */
void
zkl__succession_note(const ZklNode *node)
{
	bool		proven = zkl__succession_proven(node);
	Turn	   *turn;

	if (node->upgrade || node->is_lease ||
		!(proven || node->mode == ZKL_MODE_EXCLUSIVE))
		return;
	turn = last_turn(node);
	if (turn == NULL)
		turn = turn_new(node->session, node->lock_path);
	if (turn == NULL)
		return;
	turn->number = node->number;
	turn->czxid = node->czxid;
	turn->foreseen = proven;
}

/* The connection is another one. */
void
zkl__succession_forget(ZklSession *session)
{
	for (int i = 0; session->turns && i < BUCKETS; i++)
		while (session->turns->buckets[i])
		{
			Turn	   *turn = session->turns->buckets[i];

			session->turns->buckets[i] = turn->next;
			free(turn);
		}
	free(session->turns);
	session->turns = NULL;
}
