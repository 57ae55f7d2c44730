/*-------------------------------------------------------------------------
 *
 * fuzz_wait_name.c
 *		Fuzzes the names of wait reports: any children of <root>/waits, checked by a
 *		second parser.
 *
 * This parser first splits a name into its seven fields.  A name written from numbers
 * must be parsed into these numbers, a malformed name must be skipped, and only the
 * newest node of each session counts.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>

#include "fuzz.h"
#include "recipe/queue/node.h"
#include "recipe/deadlock/wait_name.h"

#define MAX_CHILDREN 12
#define MAX_CHILD 700
#define MAX_LIST 8
#define MAX_ANY 3
#define N_FIELDS 7

/* The contents of a name. */
typedef struct Reported
{
	uint64_t	session;
	uint64_t	wait;
	uint64_t	version;
	bool		is_victim_claim;
	int			n_node_sets;
	int			n_any[MAX_CHILD];
	bool		node_set_for_place[MAX_CHILD];
	uint64_t	any_of[MAX_CHILD];	/* of all node sets, one after the other */
	int			n_local_waiters;
	bool		waiter_for_place[MAX_CHILD];
	uint64_t	local_waiters[MAX_CHILD];
	int32_t		number;
} Reported;

static char *children[MAX_CHILDREN];
static Reported reported[MAX_CHILDREN];
static bool is_name[MAX_CHILDREN];
static int	n_children;


/*
 * Writing
 */

static void
write_name(const Reported *t, char *out)
{
	const uint64_t *id = t->any_of;

	out += sprintf(out, "%" PRIx64 ".%" PRIx64 ".%" PRIx64 ".%c.", t->session, t->wait,
				   t->version, t->is_victim_claim ? 'c' : 'w');
	for (int i = 0; i < t->n_node_sets; i++)
		for (int j = 0; j < t->n_any[i]; j++)
			out += sprintf(out, "%s%s%" PRIx64, j ? "+" : i ? "," : "",
						   j == 0 && t->node_set_for_place[i] ? "p" : "", *id++);
	*out++ = '.';
	for (int i = 0; i < t->n_local_waiters; i++)
		out += sprintf(out, "%s%s%" PRIx64, i ? "," : "",
					   t->waiter_for_place[i] ? "p" : "", t->local_waiters[i]);
	sprintf(out, ".%010d", t->number);
}

/* One of a few ids, so that they match; or a large one. */
static uint64_t
take_id(Input *input)
{
	unsigned	kind = take(input);

	return kind < 224 ? kind % 8 : UINT64_C(0x1122334455667788) * kind;
}

static void
take_reported(Input *input, Reported *t)
{
	unsigned	how = take(input);
	int			n = 0;

	t->session = take_id(input);
	t->wait = take_id(input);
	t->version = take_id(input);
	t->is_victim_claim = how & 1;
	t->n_node_sets = (int) (how >> 2) % MAX_LIST;
	t->n_local_waiters = (int) (how >> 5) % MAX_LIST;
	t->number = take_number(input);
	for (int i = 0; i < t->n_node_sets; i++)
	{
		unsigned	kind = take(input);

		t->n_any[i] = 1 + (int) kind % MAX_ANY;
		t->node_set_for_place[i] = kind & 128;
		for (int j = 0; j < t->n_any[i]; j++)
			t->any_of[n++] = take_id(input);
	}
	for (int i = 0; i < t->n_local_waiters; i++)
	{
		t->waiter_for_place[i] = take(input) & 1;
		t->local_waiters[i] = take_id(input);
	}
}


/*
 * Reading
 */

static bool
parse_hex(const char *text, uint64_t *value)
{
	size_t		length = strlen(text);

	*value = strtoull(text, NULL, 16);
	return length >= 1 && length <= 16 && strspn(text, "0123456789abcdef") == length &&
		(length == 1 || text[0] != '0');
}

/* Is there a leading "p"?  Skips it. */
static bool
is_for_place(char **text)
{
	bool		only_for_place = (*text)[0] == 'p';

	*text += only_for_place;
	return only_for_place;
}

/* Cuts text at each separator; an empty text is one empty part. */
static int
split(char *text, char separator, char **parts, int max)
{
	int			n = 0;

	do
	{
		char	   *end = strchr(text, separator);

		must(n < max, "too many parts");
		parts[n++] = text;
		if (end)
			*end++ = '\0';
		text = end;
	} while (text);
	return n;
}

static bool
expect_node_sets(char *text, Reported *t)
{
	char	   *node_sets[MAX_CHILD];
	char	   *ids[MAX_CHILD];
	int			n = 0;

	t->n_node_sets = text[0] == '\0' ? 0 : split(text, ',', node_sets, MAX_CHILD);
	for (int i = 0; i < t->n_node_sets; i++)
	{
		t->node_set_for_place[i] = is_for_place(&node_sets[i]);
		t->n_any[i] = split(node_sets[i], '+', ids, MAX_CHILD);
		for (int j = 0; j < t->n_any[i]; j++)
			if (!parse_hex(ids[j], &t->any_of[n++]))
				return false;
	}
	return true;
}

static bool
expect_local_waiters(char *text, Reported *t)
{
	char	   *ids[MAX_CHILD];

	t->n_local_waiters = text[0] == '\0' ? 0 : split(text, ',', ids, MAX_CHILD);
	for (int i = 0; i < t->n_local_waiters; i++)
	{
		t->waiter_for_place[i] = is_for_place(&ids[i]);
		if (!parse_hex(ids[i], &t->local_waiters[i]))
			return false;
	}
	return true;
}

static bool
parse_number(const char *text, int32_t *number)
{
	const char *digits = text + (text[0] == '-');
	size_t		length = strlen(digits);
	long long	value = strtoll(text, NULL, 10);

	*number = (int32_t) value;
	return length >= 1 && length <= 11 && strspn(digits, "0123456789") == length &&
		value == *number;
}

static bool
parse_name(const char *name, Reported *t)
{
	char		text[MAX_CHILD];
	char	   *fields[MAX_CHILD];
	const char *kind;

	memset(t, 0, sizeof(*t));
	strcpy(text, name);
	if (split(text, '.', fields, MAX_CHILD) != N_FIELDS)
		return false;
	kind = fields[3];
	t->is_victim_claim = kind[0] == 'c';
	return parse_hex(fields[0], &t->session) && parse_hex(fields[1], &t->wait) &&
		parse_hex(fields[2], &t->version) &&
		(kind[0] == 'c' || kind[0] == 'w') && kind[1] == '\0' &&
		expect_node_sets(fields[4], t) && expect_local_waiters(fields[5], t) &&
		parse_number(fields[6], &t->number);
}


/*
 * Comparing
 */

static bool
is_newer(int a, int b)
{
	return zkl_is_before(reported[b].number, children[b], reported[a].number, children[a]);
}

static bool
is_rival(int a, int b)
{
	return is_name[a] && is_name[b] && reported[a].session == reported[b].session;
}

/* Numbers half the range apart, which a server never assigns, have no order. */
static bool
is_unordered(int i)
{
	for (int a = 0; a < n_children; a++)
		for (int b = 0; b < n_children; b++)
			for (int c = 0; c < n_children; c++)
				if (is_rival(i, a) && is_rival(i, b) && is_rival(i, c) &&
					is_newer(a, b) && is_newer(b, c) && is_newer(c, a))
					return true;
	return false;
}

static bool
is_newest(int i)
{
	for (int other = 0; other < n_children; other++)
		if (is_rival(i, other) && is_newer(other, i))
			return false;
	return true;
}

static void
check_node_sets(const ZklWaitReports *reports, const ZklWaitNode *node, const Reported *t)
{
	const ZklNodeSet *node_set = &reports->node_sets[node->first_node_set];
	const uint64_t *id = t->any_of;

	for (int i = 0; i < t->n_node_sets; i++, node_set++)
	{
		must(node_set->waiter == t->session && node_set->n == t->n_any[i] &&
			 node_set->only_for_place == t->node_set_for_place[i] &&
			 node_set->source == node - reports->nodes, "node set %d of %s", i, node->name);
		must(memcmp(node_set->any_of, id, sizeof(*id) * (size_t) node_set->n) == 0,
			 "ids of node set %d of %s", i, node->name);
		id += node_set->n;
	}
	for (int i = 0; i < t->n_local_waiters; i++, node_set++)
		must(node_set->waiter == t->local_waiters[i] && node_set->n == 1 &&
			 node_set->only_for_place == t->waiter_for_place[i] &&
			 node_set->any_of[0] == t->session && node_set->source == node - reports->nodes,
			 "local waiter %d of %s", i, node->name);
}

static void
check_node(const ZklWaitReports *reports, const ZklWaitNode *node, int i)
{
	const Reported *t = &reported[i];
	char		prefix[24];

	snprintf(prefix, sizeof(prefix), "%" PRIx64 ".", t->session);
	must(node->session == t->session && node->wait == t->wait && node->is_victim_claim == t->is_victim_claim &&
		 node->number == t->number &&
		 node->n_node_sets == t->n_node_sets && node->n_local_waiters == t->n_local_waiters,
		 "%s is parsed differently", node->name);
	check_node_sets(reports, node, t);
	must(zkl_is_wait_of(node->name, t->session) ==
		 (strncmp(node->name, prefix, strlen(prefix)) == 0), "wrong session for %s", node->name);
	must(!zkl_is_wait_of(node->name, t->session + 1), "wrong session for %s", node->name);
}

static void
check_reports(const ZklWaitReports *reports)
{
	int			n = 0;
	int			n_node_sets = 0;

	for (int i = 0; i < reports->n; i++)
	{
		must(i == 0 || reports->nodes[i - 1].session < reports->nodes[i].session,
			 "%s is out of order", reports->nodes[i].name);
		must(reports->nodes[i].first_node_set == n_node_sets, "the node sets of %s begin at %d",
			 reports->nodes[i].name, reports->nodes[i].first_node_set);
		n_node_sets += reports->nodes[i].n_node_sets + reports->nodes[i].n_local_waiters;
	}
	for (int i = 0; i < n_children; i++)
	{
		const ZklWaitNode *node = is_name[i] ? zkl_reports_find(reports, reported[i].session) : NULL;
		bool		is_there = node && node->name == children[i];

		must(!is_name[i] || is_unordered(i) || is_there == is_newest(i), "%s is %sreported",
			 children[i], is_there ? "" : "not ");
		if (is_there)
		{
			check_node(reports, node, i);
			n++;
		}
	}
	must(n == reports->n && n_node_sets == reports->n_node_sets, "%d of %d nodes, %d of %d node sets",
		 n, reports->n, n_node_sets, reports->n_node_sets);
}

/* A written name, a written name with a change, or any bytes. */
static void
take_child(Input *input)
{
	static const char bytes[] = ".,+-0cwpfg";
	unsigned	kind = take(input);
	char		name[MAX_CHILD] = "";
	Reported   *t = &reported[n_children];
	Reported	written = {0};

	if (kind < 224)
	{
		take_reported(input, &written);
		write_name(&written, name);
	}
	else
		take_text(input, name, sizeof(name) - 1, '/');
	if (kind >= 160)
	{
		size_t		at = take(input) % (strlen(name) + 1);

		if (kind & 1)			/* inserts a byte */
			memmove(name + at + 1, name + at, strlen(name + at) + 1);
		name[at] = bytes[take(input) % (sizeof(bytes) - 1)];
	}
	for (int i = 0; i < n_children; i++)
		if (strcmp(children[i], name) == 0)
			return;
	is_name[n_children] = parse_name(name, t);
	must(kind >= 160 || (is_name[n_children] && memcmp(t, &written, sizeof(*t)) == 0),
		 "the second parser cannot parse %s", name);
	children[n_children++] = strdup(name);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input		input = {data, size};
	ZklWaitReports reports;

	n_children = 0;
	while (input.left > 0 && n_children < MAX_CHILDREN)
		take_child(&input);
	must(zkl_reports_read((const char *const *) children, n_children, &reports), "out of memory");
	check_reports(&reports);
	zkl_reports_free(&reports);
	while (n_children > 0)
		free(children[--n_children]);
	return 0;
}
