/*-------------------------------------------------------------------------
 *
 * test_grants.c
 *		Promises about queues seen from outside: their order, which nodes hold the
 *		lock, and which program created a node.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe/queue/node.h"
#include "tap.h"

#define MAX_QUEUE 12
#define N_QUEUES 20000

static int64_t
session_of(char letter)
{
	return INT64_C(0x100000000000000) * (letter - 'A' + 1);
}

/*
 * Reads a queue written as "AR0 BW1" (session, kind, number); returns it in queue
 * order, with a plus after each holder.
 */
static const char *
reported(const char *text)
{
	static char out[256];
	char		copy[256];
	char		names[MAX_QUEUE][ZKL_CHILD_NAME_SIZE];
	char		labels[MAX_QUEUE][16];
	ZklQueued	queue[MAX_QUEUE];
	char	   *save;
	int			n = 0;

	snprintf(copy, sizeof(copy), "%s", text);
	for (char *label = strtok_r(copy, " ", &save); label;
		 label = strtok_r(NULL, " ", &save), n++)
	{
		snprintf(labels[n], sizeof(labels[n]), "%s", label);
		zkl_child_name(ZKL_NODE_NAMES_CURATOR,
					   label[1] == 'R' ? ZKL_MODE_SHARED : ZKL_MODE_EXCLUSIVE,
					   session_of(label[0]), (uint64_t) n,
					   (int32_t) strtol(label + 2, NULL, 10), names[n]);
		zkl_parse_child(names[n], &queue[n].contender);
		queue[n].name = names[n];
		queue[n].item = labels[n];
	}
	zkl_sort_queue(queue, n);
	zkl_grant_queue(queue, n);
	out[0] = '\0';
	for (int i = 0; i < n; i++)
		sprintf(out + strlen(out), "%s%s%s", i ? " " : "", (char *) queue[i].item,
				queue[i].granted ? "+" : "");
	return out;
}

static void
test_queues(void)
{
	is_str(reported(""), "", "an empty queue");
	is_str(reported("AW0"), "AW0+", "a writer alone holds");
	is_str(reported("BW1 AW0"), "AW0+ BW1", "the first of two writers holds");
	is_str(reported("BR1 AR0 CW2"), "AR0+ BR1+ CW2", "readers share, a writer behind them waits");
	is_str(reported("AR0 BW1 CR2"), "AR0+ BW1 CR2", "a reader behind a waiting writer waits");
	is_str(reported("AR0 AW1"), "AR0+ AW1+", "a sole sharer's upgrade holds");
	is_str(reported("AR0 AW1 BR2"), "AR0+ AW1+ BR2", "a sole sharer's upgrade keeps readers waiting");
	is_str(reported("AR0 BR1 AW2"), "AR0+ BR1+ AW2", "an upgrade waits for other sharers");
	is_str(reported("AR0 BW1 AW2"), "AR0+ BW1 AW2", "an upgrade behind a writer has yet to move up");
	is_str(reported("AR0 BW1 AW1"), "AR0+ AW1+ BW1", "an upgrade that has moved up holds");
	is_str(reported("AR0 BR1 AW2 BW3"), "AR0+ BR1+ AW2 BW3", "of two upgrades none holds yet");
	is_str(reported("AR7 BW8 AW7"), "AR7+ AW7+ BW8", "a session that downgrades as Curator does holds both nodes");
	is_str(reported("AW7 BR7 CR8"), "AW7+ BR7+ CR8", "such a downgraded holder keeps a reader behind it waiting");
	is_str(reported("AR7 BW7 CW8"), "AR7+ BW7+ CW8", "the nodes of such a downgrade may have different GUIDs");
	is_str(reported("AW1 BW1"), "AW1+ BW1", "of two writers with one number one holds");
	is_str(reported("BW0 AW-1"), "AW-1+ BW0", "negative numbers come first");
	is_str(reported("AW-2147483648 BW2147483647"), "BW2147483647+ AW-2147483648",
		   "the order goes on when numbers wrap");
}

/* The same through the interface: places by index, also of names that are no contenders. */
static void
test_places(void)
{
	static const struct
	{
		const char *child;
		int			index;		/* of the child at this place, and its mode, position, anchor */
		ZklMode		mode;
		int			position;
		int			anchor;
	}			cases[] = {
		{"_c_00000000-0000-0041-0000-000000000001-__WRIT__0000000003", 1, ZKL_MODE_SHARED, 0, -1},
		{"_c_00000000-0000-0041-0000-000000000000-__READ__0000000001", 0, ZKL_MODE_EXCLUSIVE, 0, 1},
		{"junk", 4, ZKL_MODE_SHARED, 1, -1},
		{"_c_00000000-0000-0042-0000-000000000000-__WRIT__0000000005", 3, ZKL_MODE_EXCLUSIVE, 2, -1},
		{"_c_00000000-0000-0043-0000-000000000000-__READ__0000000004", 0, ZKL_MODE_NONE, 0, 0},
	};
	const char *children[5];
	ZklPlace	places[5];

	for (int i = 0; i < 5; i++)
	{
		children[i] = cases[i].child;
		is_int(zkl_is_contender(cases[i].child), i != 2, "\"%s\" is %s contender", cases[i].child, i == 2 ? "no" : "a");
	}
	is_int(zkl_order_queue(children, 5, places), 4, "four of five children contend");
	for (int i = 0; i < 4; i++)
		ok(places[i].index == cases[i].index && places[i].mode == cases[i].mode &&
		   places[i].position == cases[i].position && places[i].anchor == cases[i].anchor,
		   "place %d is that of child %d (%d, mode %d, position %d, anchor %d)", i, cases[i].index,
		   places[i].index, places[i].mode, places[i].position, places[i].anchor);
	is_int(zkl_order_queue(children, 0, places), 0, "an empty queue has no places");
}

/* A random queue with distinct numbers, where an owner has one node or an upgrade. */
typedef struct Draw
{
	int			n;
	char		names[MAX_QUEUE][ZKL_CHILD_NAME_SIZE];
	const char *children[MAX_QUEUE];
	int			partner[MAX_QUEUE]; /* the owner's other node, or -1 */
	bool		writer[MAX_QUEUE];
} Draw;

static unsigned seed = 1;

static int
dice(int n)
{
	return (int) (rand_r(&seed) / 7 % (unsigned) n);
}

static void
add(Draw *draw, int owner, bool writer, uint32_t number, int partner)
{
	int			i = draw->n++;

	zkl_child_name((ZklNodeNames) (dice(2) ? ZKL_NODE_NAMES_KAZOO : ZKL_NODE_NAMES_CURATOR),
				   writer ? ZKL_MODE_EXCLUSIVE : ZKL_MODE_SHARED,
				   session_of((char) ('A' + owner)), (uint64_t) i, (int32_t) number,
				   draw->names[i]);
	draw->children[i] = draw->names[i];
	draw->writer[i] = writer;
	draw->partner[i] = partner;
	if (partner >= 0)
		draw->partner[partner] = i;
}

static void
draw_queue(Draw *draw)
{
	uint32_t	number = dice(2) ? 0 : UINT32_C(0x80000000) - (uint32_t) dice(8);
	int			reader_of[6];

	draw->n = 0;
	for (int i = 0; i < 6; i++)
		reader_of[i] = -1;
	for (int steps = dice(10); steps >= 0; steps--)
	{
		int			owner = dice(6);

		number += (uint32_t) dice(2) + 1;
		if (reader_of[owner] == -1)
		{
			reader_of[owner] = dice(3) > 0 ? draw->n : -2;
			add(draw, owner, reader_of[owner] == -2, number, -1);
		}
		else if (reader_of[owner] >= 0)
		{
			add(draw, owner, true, number, reader_of[owner]);
			reader_of[owner] = -2;
		}
	}
}

static bool
agrees(const Draw *draw)
{
	ZklQueued	queue[MAX_QUEUE];

	for (int i = 0; i < draw->n; i++)
	{
		/* in any order */
		int			from = (i * 7 + 3) % draw->n;

		if (draw->n == 7)
			from = i;
		queue[i].name = draw->names[from];
		queue[i].item = (void *) &draw->names[from];
		zkl_parse_child(draw->names[from], &queue[i].contender);
	}
	zkl_sort_queue(queue, draw->n);
	zkl_grant_queue(queue, draw->n);
	for (int i = 0; i < draw->n; i++)
	{
		int			own = (int) ((char (*)[ZKL_CHILD_NAME_SIZE]) queue[i].item - draw->names);
		int			partner = draw->partner[own];
		const char *mine[2] = {draw->names[own], partner >= 0 ? draw->names[partner] : NULL};
		const char *other;
		bool		unused;
		bool		first = zkl_position(draw->children, draw->n, mine, partner >= 0 ? 2 : 1,
										 draw->writer[own] && partner >= 0,
										 &other, &unused) == ZKL_POSITION_FIRST;

		if (own != i || queue[i].granted != first)
			return false;
	}
	return true;
}

static void
test_agreement(void)
{
	int			wrong = 0;
	Draw		draw;

	for (int i = 0; i < N_QUEUES; i++)
	{
		draw_queue(&draw);
		wrong += !agrees(&draw);
	}
	is_int(wrong, 0, "the holders are the first of the queue, in %d queues", N_QUEUES);
}

/* No real queue has these numbers: the function must only end, and lose no node. */
static void
test_absurd(void)
{
	static ZklQueued queue[1000];
	static char names[1000][ZKL_CHILD_NAME_SIZE];
	int			seen[1000] = {0};
	int			n_seen = 0;

	for (int i = 0; i < 1000; i++)
	{
		zkl_child_name(ZKL_NODE_NAMES_CURATOR, dice(2) ? ZKL_MODE_SHARED : ZKL_MODE_EXCLUSIVE,
					   1, (uint64_t) i, (int32_t) ((uint32_t) i * UINT32_C(2654435761)), names[i]);
		zkl_parse_child(names[i], &queue[i].contender);
		queue[i].name = names[i];
		queue[i].item = &seen[i];
	}
	zkl_sort_queue(queue, 1000);
	zkl_grant_queue(queue, 1000);
	for (int i = 0; i < 1000; i++)
		n_seen += ++*(int *) queue[i].item == 1;
	is_int(n_seen, 1000, "numbers from the whole range are ordered");
}

static void
test_makers(void)
{
	static const struct
	{
		const char *child;
		int64_t		session;
		ZklMaker	maker;
	}			cases[] = {
		{"_c_01000000-0000-0001-0000-000000000001-__WRIT__0000000000", 0x100000000000001, ZKL_MAKER_ZKLOCK},
		{"_c_01000000-0000-0001-0000-000000000001-__WRIT__0000000000", 0x100000000000002, ZKL_MAKER_CURATOR},
		{"_c_01000000-0000-0001-0000-000000000001-lease-0000000000", 0x100000000000001, ZKL_MAKER_ZKLOCK},
		{"01000000000000010000000000000001__rlock__0000000003", 0x100000000000001, ZKL_MAKER_ZKLOCK},
		{"01000000000000010000000000000001__rlock__0000000003", 0, ZKL_MAKER_KAZOO},
		{"_c_0a1b2c3d-1111-2222-3333-444455556666-lock-0000000012", 5, ZKL_MAKER_CURATOR},
		{"_c_0a1b2c3d-1111-2222-3333-444455556666-__READ__-000000012", 5, ZKL_MAKER_CURATOR},
		{"_c_0a1b2c3d-1111-2222-3333-444455556666-lease-0000000012", 5, ZKL_MAKER_CURATOR},
		{"_c_0a1b2c3d-1111-2222-3333-444455556666-lock-", 5, ZKL_MAKER_OTHER},
		{"_c_0a1b2c3d-1111-2222-3333-444455556666-lock-1x", 5, ZKL_MAKER_OTHER},
		{"_c_0a1b2c3d-1111-2222-3333-44445555666", 5, ZKL_MAKER_OTHER},
		{"_c_", 5, ZKL_MAKER_OTHER},
		{"_c_0a1b2c3d111122223333444455556666-lock-0000000012", 5, ZKL_MAKER_CURATOR},
		{"0a1b2c3d111122223333444455556666__lock__0000000012", 5, ZKL_MAKER_KAZOO},
		{"0a1b2c3d111122223333444455556666", 5, ZKL_MAKER_OTHER},
		{"0a1b2c3d-1111-2222-3333-444455556666-lock-0000000012", 5, ZKL_MAKER_OTHER},
		{"0a1b2c3d-1111-2222-3333-444455556666__WRIT__0000000012", 5, ZKL_MAKER_OTHER},
		{"0a1b2c3d11112222333344445555666", 5, ZKL_MAKER_OTHER},
		{"x-0100000000000001-0000000001", 0x100000000000001, ZKL_MAKER_OTHER},
		{"lock-0000000001", 1, ZKL_MAKER_OTHER},
		{"", 0, ZKL_MAKER_OTHER},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		is_int(zkl_maker(cases[i].child, cases[i].session), cases[i].maker,
			   "the program that created \"%s\" is recognised", cases[i].child);
}

int
main(void)
{
	test_queues();
	test_places();
	test_agreement();
	test_absurd();
	test_makers();
	return done();
}
