/*-------------------------------------------------------------------------
 *
 * test_position.c
 *		Promises about the order of the queue.
 *
 * Promise: 2.1
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe/queue/queue_order.h"
#include "tap.h"

#define MAX_QUEUE 12
#define N_QUEUES 20000

/*
 * A queue written as "A:R0 B:W1" (session, kind, number).  The test asks for the
 * position of the first node; its session holds its other nodes, unless an x marks a
 * node as given up.
 */
typedef struct Queue
{
	int			n;
	char		names[MAX_QUEUE][ZKL_CHILD_NAME_SIZE];
	const char *children[MAX_QUEUE];
	char		labels[MAX_QUEUE][16];
	int			n_mine;
	const char *mine[MAX_QUEUE];
} Queue;

static int64_t
session_of(char letter)
{
	return INT64_C(0x100000000000000) * (letter - 'A' + 1);
}

/* R, W: Curator's read/write lock; U: its writer, of an upgrade that waits; L: its mutex; r, w: kazoo's; others: raw. */
static void
write_name(char *out, const char *label, int counter)
{
	char		kind = label[2];
	ZklNodeNames node_names = kind == 'L' ? ZKL_NODE_NAMES_CURATOR_MUTEX :
		kind == 'r' || kind == 'w' ? ZKL_NODE_NAMES_KAZOO : ZKL_NODE_NAMES_CURATOR;
	ZklMode		mode = kind == 'R' || kind == 'r' ? ZKL_MODE_SHARED : ZKL_MODE_EXCLUSIVE;

	zkl_child_name(node_names, mode, session_of(label[0]),
				   (uint64_t) counter | (kind == 'U' ? ZKL_UPGRADE_BIT : 0),
				   (int32_t) strtol(label + 3, NULL, 10), out);
}

static void
queue_read(Queue *queue, const char *text)
{
	char		copy[256];
	char	   *save;

	memset(queue, 0, sizeof(*queue));
	snprintf(copy, sizeof(copy), "%s", text);
	for (char *label = strtok_r(copy, " ", &save); label;
		 label = strtok_r(NULL, " ", &save))
	{
		int			i = queue->n++;

		snprintf(queue->labels[i], sizeof(queue->labels[i]), "%s", label);
		if (label[1] == ':')
			write_name(queue->names[i], label, i + 1);
		else
			snprintf(queue->names[i], sizeof(queue->names[i]), "%s", label);
		queue->children[i] = queue->names[i];
		if (i == 0 || (label[0] == text[0] && label[1] == ':' && strchr(label, 'x') == NULL))
			queue->mine[queue->n_mine++] = queue->names[i];
	}
}

/* Returns the label of a child's name. */
static const char *
label_of(const Queue *queue, const char *name)
{
	for (int i = 0; i < queue->n; i++)
		if (name == queue->names[i])
			return queue->labels[i];
	return NULL;
}

/* The order of a children list has no meaning. */
static void
reverse(Queue *queue)
{
	for (int i = 0; i < queue->n; i++)
		queue->children[i] = queue->names[queue->n - 1 - i];
}

/* "upgrade": our session's reader node is in the queue, too. */
static void
queue_entries(const char *text, bool upgrade, ZklPosition expected, const char *other_label,
			  const char *promise)
{
	Queue		queue;
	const char *other;
	ZklPosition position;

	queue_read(&queue, text);
	for (int reversed = 0; reversed < 2; reversed++)
	{
		position = zkl_position(queue.children, queue.n, queue.mine, queue.n_mine,
								upgrade, &other);
		if (!ok(position == expected, "%s%s", promise, reversed ? " (reversed)" : ""))
			diag("%s: position %d instead of %d", text, position, expected);
		if (other_label)
			is_str(other ? label_of(&queue, other) : NULL, other_label,
				   "the position refers to the right node");
		reverse(&queue);
	}
}

static void
test_plain(void)
{
	queue_entries("A:W0", false, ZKL_POSITION_FIRST, NULL, "a writer alone is first");
	queue_entries("A:R0", false, ZKL_POSITION_FIRST, NULL, "a reader alone is first");
	queue_entries("A:W1 B:W0 C:W2", false, ZKL_POSITION_WAITS, "B:W0", "a writer waits for a writer before it");
	queue_entries("A:W3 B:W0 C:R1 D:W2", false, ZKL_POSITION_WAITS, "D:W2", "a writer watches the nearest node before it");
	queue_entries("A:W3 B:W0 D:R2", false, ZKL_POSITION_WAITS, "D:R2", "a writer waits for readers, too");
	queue_entries("A:R3 B:R0 C:R1", false, ZKL_POSITION_FIRST, NULL, "readers are first together");
	queue_entries("A:R4 B:W0 C:W1 D:R2 E:R3", false, ZKL_POSITION_WAITS, "C:W1", "a reader watches the nearest writer");
	queue_entries("A:R0 B:W1 C:W2", false, ZKL_POSITION_FIRST, NULL, "writers behind do not stop a reader");
	queue_entries("A:R2 B:R0 C:W1", false, ZKL_POSITION_WAITS, "C:W1", "a reader does not pass a waiting writer");
	queue_entries("A:W0 B:W1", false, ZKL_POSITION_FIRST, NULL, "a writer does not wait for nodes behind it");
	queue_entries("A:W10 B:W9", false, ZKL_POSITION_WAITS, "B:W9", "numbers are compared as numbers");
}

static void
test_mixed(void)
{
	queue_entries("A:w2 B:L0 C:W1", false, ZKL_POSITION_WAITS, "C:W1", "kazoo waits for Curator");
	queue_entries("A:L2 B:w0 C:w1", false, ZKL_POSITION_WAITS, "C:w1", "Curator waits for kazoo");
	queue_entries("A:L2 B:r1", false, ZKL_POSITION_WAITS, "B:r1", "Curator's mutex waits for kazoo's reader");
	queue_entries("A:R2 B:L1", false, ZKL_POSITION_WAITS, "B:L1", "a reader waits for Curator's mutex");
	queue_entries("A:r2 B:R1", false, ZKL_POSITION_FIRST, NULL, "readers of both programs share");
	queue_entries("A:W2 lease_holder x-1-0000000000 0000000000 __lock__", false,
				  ZKL_POSITION_FIRST, NULL, "names of no known program are ignored");
	queue_entries("A:W2 lock-0000000001", false, ZKL_POSITION_WAITS, "lock-0000000001",
				  "a node without a GUID is a contender");
	queue_entries("A:W-2147483648 B:W2147483647", false, ZKL_POSITION_WAITS, "B:W2147483647",
				  "a large positive number is before a large negative one");
	queue_entries("A:W2147483647 B:W-2147483648", false, ZKL_POSITION_FIRST, NULL,
				  "a large negative number is behind a large positive one");
}

static void
test_own(void)
{
	queue_entries("A:W2 A:R0 A:W1", false, ZKL_POSITION_FIRST, NULL, "nodes that the session holds do not block it");
	queue_entries("A:R2 A:W1x", false, ZKL_POSITION_WAITS, "A:W1x", "a node of the session that was given up blocks a reader");
	queue_entries("A:W2 A:R1x", false, ZKL_POSITION_WAITS, "A:R1x", "a reader's node that was given up blocks a writer");
	queue_entries("A:R2 A:R1x", false, ZKL_POSITION_FIRST, NULL, "a reader's node that was given up does not block a reader");
	queue_entries("A:W3 A:R0 B:R1 A:W2", false, ZKL_POSITION_WAITS, "B:R1", "other nodes between the session's own nodes block");
	queue_entries("A:r3 A:L0", false, ZKL_POSITION_FIRST, NULL, "own nodes with names of another program do not block");
	queue_entries("A:W5 A:R0 B:R1", true, ZKL_POSITION_WAITS, "B:R1", "an upgrade waits for another sharer");
}

static void
test_missing(void)
{
	Queue		queue;
	const char *other;

	queue_read(&queue, "A:W0 B:W1");
	is_int(zkl_position(queue.children + 1, 1, queue.mine, 1, false, &other),
		   ZKL_POSITION_GONE, "a node that is missing in the list is gone");
	queue_read(&queue, "A:W1 A:R0 B:R2");
	is_int(zkl_position(queue.children + 1, 2, queue.mine, 2, true, &other),
		   ZKL_POSITION_GONE, "an upgrade that is not in the list is gone");
	queue_entries("lease_holder B:W1", false, ZKL_POSITION_GONE, NULL, "a name that is no contender's has no position");
	queue.children[1] = queue.children[2];
	is_int(zkl_position(queue.children, 2, queue.mine, 2, true, &other),
		   ZKL_POSITION_NO_ANCHOR, "an upgrade needs the node of the shared lock");
	is_int(zkl_position(queue.children, 0, queue.mine, 2, true, &other),
		   ZKL_POSITION_NO_ANCHOR, "an upgrade needs the node of the shared lock, also in an empty list");
}

static void
test_downgrade(void)
{
	queue_entries("A:R4 B:W4", false, ZKL_POSITION_FIRST, NULL,
				  "of equal numbers, a reader with the lesser name is first");
	queue_entries("A:W5 B:R4 C:W6", false, ZKL_POSITION_WAITS, "B:R4",
				  "a writer waits for a downgraded holder");
	queue_entries("A:R5 B:R4 C:W6", false, ZKL_POSITION_FIRST, NULL,
				  "a reader joins a downgraded holder");
	queue_entries("A:R4 A:W4 B:W5", false, ZKL_POSITION_FIRST, NULL,
				  "both nodes of a downgrade as Curator does it belong to one session");
	queue_entries("A:W7 A:R4 B:W5 C:R6", true, ZKL_POSITION_MOVE_UP, "B:W5",
				  "a downgraded holder may upgrade again");
}

static void
test_upgrade(void)
{
	queue_entries("A:W1 A:R0", true, ZKL_POSITION_FIRST, NULL, "a sole sharer upgrades at once");
	queue_entries("A:W2 A:R0 B:R1", true, ZKL_POSITION_WAITS, "B:R1", "another sharer blocks an upgrade");
	queue_entries("A:W3 A:R2 B:R0 C:R1", true, ZKL_POSITION_WAITS, "C:R1",
				  "sharers before the own reader node block an upgrade, which watches the nearest");
	queue_entries("A:W2 A:R0 B:W1", true, ZKL_POSITION_MOVE_UP, "B:W1",
				  "an upgrade moves up before it passes a waiting writer");
	queue_entries("A:W5 A:R0 B:W4 C:W1 D:R3", true, ZKL_POSITION_MOVE_UP, "C:W1",
				  "an upgrade moves up to the first waiting writer, not to the nearest");
	queue_entries("A:W1 A:R0 B:W1", true, ZKL_POSITION_FIRST, NULL, "an upgrade that has moved up passes the writer");
	queue_entries("C:W1 C:R0 B:W1", true, ZKL_POSITION_FIRST, NULL, "an upgrade passes the writer, whichever name is less");
	queue_entries("A:W1 A:R0 B:W1 C:R2", true, ZKL_POSITION_FIRST, NULL,
				  "readers behind the passed writer do not block an upgrade");
	queue_entries("A:W2 A:R0 B:R1 C:W2", true, ZKL_POSITION_WAITS, "B:R1",
				  "sharers before the passed writer block an upgrade");
	queue_entries("A:W3 A:R0 B:W1 B:R2", true, ZKL_POSITION_MOVE_UP, "B:W1",
				  "a reader of the waiting writer's session does not block an upgrade");
	queue_entries("A:W3 A:R0 B:R1 C:W4", true, ZKL_POSITION_WAITS, "B:R1", "writers behind an upgrade do not block it");
}

static void
test_deadlock(void)
{
	queue_entries("A:U3 A:R0 B:R1 B:U2", true, ZKL_POSITION_DEADLOCK, "B:U2", "the later of two upgrades gets the deadlock error");
	queue_entries("A:U3 A:R0 B:R1 B:W2", true, ZKL_POSITION_MOVE_UP, "B:W2", "a reader and a writer of one session are no upgrade that waits");
	queue_entries("B:U2 B:R1 A:R0 A:U3", true, ZKL_POSITION_WAITS, "A:R0", "the earlier of two upgrades waits");
	queue_entries("A:U4 A:R0 B:R1 B:U2 C:W2", true, ZKL_POSITION_DEADLOCK, "B:U2",
				  "the later upgrade gets the error after the earlier one has moved up");
	queue_entries("A:U5 A:R0 B:R1 C:W2 B:U4", true, ZKL_POSITION_DEADLOCK, "B:U4",
				  "the later upgrade gets the error before either has moved up");
	queue_entries("B:U4 B:R1 A:R0 C:W2 A:U5", true, ZKL_POSITION_MOVE_UP, "C:W2", "the earlier upgrade moves up");
	queue_entries("A:U5 A:R0 B:R1 C:R2 B:U4", true, ZKL_POSITION_DEADLOCK, "B:U4", "the later upgrade gets the error with other sharers in the queue");
	queue_entries("A:W4 A:R0 B:W1", false, ZKL_POSITION_WAITS, "B:W1", "a writer that does not upgrade never gets the deadlock error");
}

/*
 * Queues seen from outside: which nodes hold the lock
 */

/* Returns the queue in its order, with a plus after each holder. */
static const char *
reported(const char *text)
{
	static char out[256];
	Queue		read;
	ZklQueued	queue[MAX_QUEUE];

	queue_read(&read, text);
	for (int i = 0; i < read.n; i++)
	{
		zkl_parse_child(read.names[i], &queue[i].contender);
		queue[i].name = read.names[i];
		queue[i].item = read.labels[i];
	}
	zkl_sort_queue(queue, read.n);
	zkl_grant_queue(queue, read.n);
	out[0] = '\0';
	for (int i = 0; i < read.n; i++)
		sprintf(out + strlen(out), "%s%s%s", i ? " " : "", (char *) queue[i].item, queue[i].granted ? "+" : "");
	return out;
}

static void
test_queues(void)
{
	is_str(reported(""), "", "an empty queue");
	is_str(reported("A:W0"), "A:W0+", "a writer alone holds");
	is_str(reported("B:W1 A:W0"), "A:W0+ B:W1", "the first of two writers holds");
	is_str(reported("B:R1 A:R0 C:W2"), "A:R0+ B:R1+ C:W2", "readers share, a writer behind them waits");
	is_str(reported("A:R0 B:W1 C:R2"), "A:R0+ B:W1 C:R2", "a reader behind a waiting writer waits");
	is_str(reported("A:R0 A:W1"), "A:R0+ A:W1+", "a sole sharer's upgrade holds");
	is_str(reported("A:R0 A:W1 B:R2"), "A:R0+ A:W1+ B:R2", "a sole sharer's upgrade keeps readers waiting");
	is_str(reported("A:R0 B:R1 A:W2"), "A:R0+ B:R1+ A:W2", "an upgrade waits for other sharers");
	is_str(reported("A:R0 B:W1 A:W2"), "A:R0+ B:W1 A:W2", "an upgrade behind a writer has yet to move up");
	is_str(reported("A:R0 B:W1 A:W1"), "A:R0+ A:W1+ B:W1", "an upgrade that has moved up holds");
	is_str(reported("A:R0 B:R1 A:W2 B:W3"), "A:R0+ B:R1+ A:W2 B:W3", "of two upgrades none holds yet");
	is_str(reported("A:R7 B:W8 A:W7"), "A:R7+ A:W7+ B:W8", "a session that downgrades as Curator does holds both nodes");
	is_str(reported("A:W7 B:R7 C:R8"), "A:W7+ B:R7+ C:R8", "such a downgraded holder keeps a reader behind it waiting");
	is_str(reported("A:R7 B:W7 C:W8"), "A:R7+ B:W7+ C:W8", "the nodes of such a downgrade may have different GUIDs");
	is_str(reported("A:W1 B:W1"), "A:W1+ B:W1", "of two writers with one number one holds");
	is_str(reported("B:W0 A:W-1"), "A:W-1+ B:W0", "negative numbers come first");
	is_str(reported("A:W-2147483648 B:W2147483647"), "B:W2147483647+ A:W-2147483648",
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
		bool		first = zkl_position(draw->children, draw->n, mine, partner >= 0 ? 2 : 1,
										 draw->writer[own] && partner >= 0,
										 &other) == ZKL_POSITION_FIRST;

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

int
main(void)
{
	test_plain();
	test_mixed();
	test_own();
	test_missing();
	test_downgrade();
	test_upgrade();
	test_deadlock();
	test_queues();
	test_places();
	test_agreement();
	test_absurd();
	return done();
}
