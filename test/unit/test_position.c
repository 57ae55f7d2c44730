/*-------------------------------------------------------------------------
 *
 * test_position.c
 *		Promises about the order of the queue.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe/queue/node.h"
#include "tap.h"

#define MAX_QUEUE 12

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

/* R, W: Curator's read/write lock; L: its mutex; r, w: kazoo's; others: raw. */
static void
write_name(char *out, const char *label, int counter)
{
	char		kind = label[2];
	ZklNodeNames node_names = kind == 'L' ? ZKL_NODE_NAMES_CURATOR_MUTEX :
		kind == 'r' || kind == 'w' ? ZKL_NODE_NAMES_KAZOO : ZKL_NODE_NAMES_CURATOR;
	ZklMode		mode = kind == 'R' || kind == 'r' ? ZKL_MODE_SHARED : ZKL_MODE_EXCLUSIVE;

	zkl_child_name(node_names, mode, session_of(label[0]), (uint64_t) counter,
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
	bool		follows_reader;
	ZklPosition position;

	queue_read(&queue, text);
	for (int reversed = 0; reversed < 2; reversed++)
	{
		position = zkl_position(queue.children, queue.n, queue.mine, queue.n_mine,
								upgrade, &other, &follows_reader);
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
	bool		unused;

	queue_read(&queue, "A:W0 B:W1");
	is_int(zkl_position(queue.children + 1, 1, queue.mine, 1, false, &other, &unused),
		   ZKL_POSITION_GONE, "a node that is missing in the list is gone");
	queue_read(&queue, "A:W1 A:R0 B:R2");
	is_int(zkl_position(queue.children + 1, 2, queue.mine, 2, true, &other, &unused),
		   ZKL_POSITION_GONE, "... also an upgrade");
	queue.children[1] = queue.children[2];
	is_int(zkl_position(queue.children, 2, queue.mine, 2, true, &other, &unused),
		   ZKL_POSITION_NO_ANCHOR, "an upgrade needs the node of the shared lock");
	is_int(zkl_position(queue.children, 0, queue.mine, 2, true, &other, &unused),
		   ZKL_POSITION_NO_ANCHOR, "... also in an empty list");
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
	queue_entries("A:W3 A:R0 B:R1 B:W2", true, ZKL_POSITION_DEADLOCK, NULL, "the later of two upgrades gets the deadlock error");
	queue_entries("B:W2 B:R1 A:R0 A:W3", true, ZKL_POSITION_WAITS, "A:R0", "the earlier of two upgrades waits");
	queue_entries("A:W4 A:R0 B:R1 B:W2 C:W2", true, ZKL_POSITION_DEADLOCK, NULL,
				  "the later upgrade gets the error after the earlier one has moved up");
	queue_entries("A:W5 A:R0 B:R1 C:W2 B:W4", true, ZKL_POSITION_DEADLOCK, NULL,
				  "the later upgrade gets the error before either has moved up");
	queue_entries("B:W4 B:R1 A:R0 C:W2 A:W5", true, ZKL_POSITION_MOVE_UP, "C:W2", "the earlier upgrade moves up");
	queue_entries("A:W5 A:R0 B:R1 C:R2 B:W4", true, ZKL_POSITION_DEADLOCK, NULL, "the later upgrade gets the error with other sharers in the queue");
	queue_entries("A:W4 A:R0 B:W1", false, ZKL_POSITION_WAITS, "B:W1", "a writer that does not upgrade never gets the deadlock error");
}

static bool
follows_reader(const char *text, bool upgrade)
{
	Queue		queue;
	const char *other;
	bool		follows;

	queue_read(&queue, text);
	zkl_position(queue.children, queue.n, queue.mine, queue.n_mine, upgrade, &other, &follows);
	return follows;
}

static void
test_follows_reader(void)
{
	ok(follows_reader("A:W2 B:R0 C:W1", false), "a writer follows a reader, also if it waits for a writer");
	ok(follows_reader("A:W2 A:R0 B:R1", true), "an upgrade follows another sharer");
	ok(!follows_reader("A:W1 B:W0 C:R2", false), "a writer does not follow a reader behind it");
	ok(!follows_reader("A:R1 B:R0", false), "a reader follows none");
}


/*
 * Brute force: random queues of plain contenders.
 */

static bool
is_first(const Queue *queue, int i)
{
	const char *other;
	bool		unused;

	return zkl_position(queue->children, queue->n, queue->children + i, 1,
						false, &other, &unused) == ZKL_POSITION_FIRST;
}

static void
random_queue(Queue *queue, unsigned *seed)
{
	static const char kinds[] = "RWLrwRR";
	char		text[256] = "";
	int			n = 1 + rand_r(seed) % 8;
	int			base = rand_r(seed) % 3 == 0 ? INT32_MAX - 3 : 0;

	for (int i = 0; i < n; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%c:%c%d ",
				 'A' + i, kinds[rand_r(seed) % 7],
				 (int32_t) ((uint32_t) base + (uint32_t) (rand_r(seed) % 8)));
	queue_read(queue, text);
}

static bool
is_reader(const Queue *queue, int i)
{
	return strchr("Rr", queue->labels[i][2]) != NULL;
}

/* Is exactly one contender first, or are only readers first? */
static bool
excludes(const Queue *queue)
{
	int			firsts = 0;
	int			writers = 0;

	for (int i = 0; i < queue->n; i++)
		if (is_first(queue, i))
		{
			firsts++;
			writers += !is_reader(queue, i);
		}
	return firsts > 0 && (writers == 0 || firsts == 1);
}

/* Each contender that is not first waits for an existing one before it. */
static bool
chained(const Queue *queue)
{
	for (int i = 0; i < queue->n; i++)
	{
		const char *other;
		bool		unused;
		ZklContender own;
		ZklContender before;

		if (zkl_position(queue->children, queue->n, queue->children + i, 1,
						 false, &other, &unused) == ZKL_POSITION_FIRST)
			continue;
		if (other == NULL || !zkl_parse_child(queue->names[i], &own) ||
			!zkl_parse_child(other, &before) ||
			!zkl_is_before(before.number, other, own.number, queue->names[i]))
			return false;
	}
	return true;
}

static void
test_brute_force(void)
{
	unsigned	seed = 7;
	Queue		queue;
	int			bad = 0;

	for (int round = 0; round < 20000 && bad == 0; round++)
	{
		random_queue(&queue, &seed);
		if (!excludes(&queue) || !chained(&queue))
		{
			bad++;
			for (int i = 0; i < queue.n; i++)
				diag("%s %s", queue.labels[i], queue.names[i]);
		}
	}
	is_int(bad, 0, "in 20,000 random queues one writer or only readers are first, and each other contender waits for one before it");
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
	test_follows_reader();
	test_brute_force();
	return done();
}
