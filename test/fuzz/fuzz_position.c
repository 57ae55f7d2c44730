/*-------------------------------------------------------------------------
 *
 * fuzz_position.c
 *		Fuzzes the position in a queue: any children list, checked by a second
 *		implementation of the rule.
 *
 * This implementation sorts the contenders before a node by their distance and
 * derives the position from that row.  In any list, two nodes are both first only if
 * both are readers.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"
#include "recipe/queue/queue_order.h"

#define MAX_CHILDREN 16
#define MAX_CHILD 96

typedef struct Ahead
{
	const char *name;
	uint32_t	steps;			/* distance before the own node */
	ZklContender c;
} Ahead;

static char names[MAX_CHILDREN][MAX_CHILD];
static const char *children[MAX_CHILDREN];
static int	n_children;

/* The first in the queue comes first. */
static int
compare(const void *a, const void *b)
{
	const Ahead *x = a;
	const Ahead *y = b;

	if (x->steps != y->steps)
		return x->steps > y->steps ? -1 : 1;
	return strcmp(x->name, y->name);
}

static bool
contains(const char *const *list, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (strcmp(list[i], name) == 0)
			return true;
	return false;
}

/* Collects all foreign contenders before the own node, the first one first. */
static int
collect_predecessors(const char *const *mine, int n_mine, const ZklContender *own, Ahead *row)
{
	int			n = 0;

	for (int i = 0; i < n_children; i++)
	{
		Ahead	   *a = &row[n];

		a->name = children[i];
		if (contains(mine, n_mine, a->name) || !zkl_parse_child(a->name, &a->c))
			continue;
		a->steps = (uint32_t) own->number - (uint32_t) a->c.number;
		if (a->steps == 0 ? strcmp(a->name, mine[0]) < 0 :
			a->steps < UINT32_C(0x80000000) ||
			(a->steps == UINT32_C(0x80000000) && a->c.number < own->number))
			n++;
	}
	qsort(row, (size_t) n, sizeof(Ahead), compare);
	return n;
}

static ZklPosition
expected_newcomer(const Ahead *row, int n, bool writer, const char **other)
{
	while (n-- > 0)
		if (writer || row[n].c.writer)
		{
			*other = row[n].name;
			return ZKL_POSITION_WAITS;
		}
	return ZKL_POSITION_FIRST;
}

static bool
has_reader_of(const Ahead *row, int n, const ZklContender *c)
{
	for (int i = 0; i < n; i++)
		if (!row[i].c.writer && row[i].c.has_owner && row[i].c.owner == c->owner)
			return true;
	return false;
}

/* Readers before the row's first writer may hold; the upgrade moves up past the rest. */
static ZklPosition
expected_upgrade(const Ahead *row, int n, const ZklContender *own, const char **other)
{
	int			holders = 0;

	while (holders < n && !row[holders].c.writer)
		holders++;
	for (int i = holders; i < n; i++)
		if (zkl_is_upgrade(&row[i].c) && row[i].c.writer && row[i].c.owner != own->owner &&
			has_reader_of(row, holders, &row[i].c))
		{
			*other = row[i].name;
			return ZKL_POSITION_DEADLOCK;
		}
	if (holders < n && row[holders].c.number != own->number)
	{
		*other = row[holders].name;
		return ZKL_POSITION_MOVE_UP;
	}
	if (holders == 0)
		return ZKL_POSITION_FIRST;
	*other = row[holders - 1].name;
	return ZKL_POSITION_WAITS;
}

static void
check_position(const char *const *mine, int n_mine, bool upgrade)
{
	Ahead		row[MAX_CHILDREN];
	ZklContender own;
	const char *other;
	const char *expected_other = NULL;
	bool		has_anchor = false;
	ZklPosition expected = ZKL_POSITION_GONE;
	ZklPosition got = zkl_position(children, n_children, mine, n_mine, upgrade, &other);

	for (int i = 1; i < n_mine; i++)
		has_anchor = has_anchor || contains(children, n_children, mine[i]);
	if (upgrade && !has_anchor)
		expected = ZKL_POSITION_NO_ANCHOR;
	else if (contains(children, n_children, mine[0]) && zkl_parse_child(mine[0], &own))
	{
		int			n = collect_predecessors(mine, n_mine, &own, row);

		expected = upgrade ? expected_upgrade(row, n, &own, &expected_other)
			: expected_newcomer(row, n, own.writer, &expected_other);
	}
	must(got == expected, "the position of %s of %d is %d, not %d", mine[0], n_children, got, expected);
	if (got == ZKL_POSITION_WAITS || got == ZKL_POSITION_MOVE_UP || got == ZKL_POSITION_DEADLOCK)
		must(other && strcmp(other, expected_other) == 0,
			 "the position of %s refers to %s, not %s", mine[0], other, expected_other);
}

static void
check_exclusion(void)
{
	const char *other;
	int			firsts = 0;
	int			writers = 0;
	ZklContender c;

	for (int i = 0; i < n_children; i++)
		if (zkl_position(children, n_children, &children[i], 1, false, &other) ==
			ZKL_POSITION_FIRST && zkl_parse_child(children[i], &c))
		{
			firsts++;
			writers += c.writer;
		}
	must(writers == 0 || firsts == 1, "%d contenders are first, %d of them writers", firsts, writers);
}

/* A name that a lock recipe writes, of one of a few sessions, or any bytes. */
static void
take_child(Input *input, int i)
{
	unsigned	kind = take(input);
	ZklNodeNames node_names = (ZklNodeNames) (kind % 3);
	ZklMode		mode = kind & 8 && node_names != ZKL_NODE_NAMES_CURATOR_MUTEX
		? ZKL_MODE_SHARED : ZKL_MODE_EXCLUSIVE;
	int64_t		session = (int64_t) (kind >> 4 & 3) << 48;

	if (kind < 192)
		zkl_child_name(node_names, mode, session, (uint64_t) (kind >> 6) * (ZKL_UPGRADE_BIT / 2), take_number(input),
					   names[i]);
	else if (kind < 224)
		snprintf(names[i], MAX_CHILD, "%slock-%010d", kind % 2 ? "x" : "", take_number(input));
	else
		take_text(input, names[i], MAX_CHILD, '/');
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input		input = {data, size};
	unsigned	flags = take(&input);
	const char *mine[3];
	int			n_mine = 1 + flags % 3;
	bool		upgrade = flags & 16;
	ZklContender own;

	n_children = 0;
	while (input.left > 0 && n_children < MAX_CHILDREN)
	{
		take_child(&input, n_children);
		if (contains(children, n_children, names[n_children]))
			continue;
		children[n_children] = names[n_children];
		n_children++;
	}
	if (n_children < 3)
		return 0;
	for (int i = 0; i < n_mine; i++)
		mine[i] = children[i];
	/* The session's own nodes always show their owner; an upgrade relies on that. */
	if (zkl_parse_child(mine[0], &own) && !own.has_owner)
		upgrade = false;
	check_position(mine, n_mine, upgrade);

	/* The own node is missing. */
	if (flags & 32)
	{
		children[0] = children[--n_children];
		check_position(mine, n_mine, upgrade);
	}
	check_exclusion();
	return 0;
}
