/*-------------------------------------------------------------------------
 *
 * fuzz_wait_name.c
 *		Any children of <root>/waits: who waits for whom, by another reading of
 *		their names.
 *
 * Here a name is cut into its seven fields first.  What is written from numbers
 * must be read as these numbers, what is no such name must be passed over, and
 * of each session the newest node counts.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>

#include "fuzz.h"
#include "node.h"
#include "wait_name.h"

#define MAX_CHILDREN 12
#define MAX_CHILD 700
#define MAX_LIST 8
#define MAX_ANY 3
#define N_FIELDS 7

/* What a name says. */
typedef struct Told
{
	uint64_t	session;
	uint64_t	wait;
	uint64_t	version;
	bool		claims;
	int			n_needs;
	int			n_any[MAX_CHILD];
	bool		need_in_line[MAX_CHILD];
	uint64_t	any_of[MAX_CHILD];	/* of all needs, one after the other */
	int			n_dependents;
	bool		dependent_in_line[MAX_CHILD];
	uint64_t	dependents[MAX_CHILD];
	int32_t		number;
} Told;

static char *children[MAX_CHILDREN];
static Told told[MAX_CHILDREN];
static bool is_name[MAX_CHILDREN];
static int	n_children;


/*
 * Writing
 */

static void
write_name(const Told *t, char *out)
{
	const uint64_t *id = t->any_of;

	out += sprintf(out, "%" PRIx64 ".%" PRIx64 ".%" PRIx64 ".%c.", t->session, t->wait,
				   t->version, t->claims ? 'c' : 'w');
	for (int i = 0; i < t->n_needs; i++)
		for (int j = 0; j < t->n_any[i]; j++)
			out += sprintf(out, "%s%s%" PRIx64, j ? "+" : i ? "," : "",
						   j == 0 && t->need_in_line[i] ? "p" : "", *id++);
	*out++ = '.';
	for (int i = 0; i < t->n_dependents; i++)
		out += sprintf(out, "%s%s%" PRIx64, i ? "," : "",
					   t->dependent_in_line[i] ? "p" : "", t->dependents[i]);
	sprintf(out, ".%010d", t->number);
}

/* One of a few, so that they meet; or a large one. */
static uint64_t
take_id(Input *input)
{
	unsigned	kind = take(input);

	return kind < 224 ? kind % 8 : UINT64_C(0x1122334455667788) * kind;
}

static void
take_told(Input *input, Told *t)
{
	unsigned	how = take(input);
	int			n = 0;

	t->session = take_id(input);
	t->wait = take_id(input);
	t->version = take_id(input);
	t->claims = how & 1;
	t->n_needs = (int) (how >> 2) % MAX_LIST;
	t->n_dependents = (int) (how >> 5) % MAX_LIST;
	t->number = take_number(input);
	for (int i = 0; i < t->n_needs; i++)
	{
		unsigned	kind = take(input);

		t->n_any[i] = 1 + (int) kind % MAX_ANY;
		t->need_in_line[i] = kind & 128;
		for (int j = 0; j < t->n_any[i]; j++)
			t->any_of[n++] = take_id(input);
	}
	for (int i = 0; i < t->n_dependents; i++)
	{
		t->dependent_in_line[i] = take(input) & 1;
		t->dependents[i] = take_id(input);
	}
}


/*
 * Reading
 */

static bool
understand_hex(const char *text, uint64_t *value)
{
	size_t		length = strlen(text);

	*value = strtoull(text, NULL, 16);
	return length >= 1 && length <= 16 && strspn(text, "0123456789abcdef") == length;
}

/* Is there a "p" in front?  Passes it over. */
static bool
is_in_line(char **text)
{
	bool		in_line = (*text)[0] == 'p';

	*text += in_line;
	return in_line;
}

/* Cuts text at each separator; an empty text has one part, which is empty. */
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
understand_needs(char *text, Told *t)
{
	char	   *needs[MAX_CHILD];
	char	   *ids[MAX_CHILD];
	int			n = 0;

	t->n_needs = text[0] == '\0' ? 0 : split(text, ',', needs, MAX_CHILD);
	for (int i = 0; i < t->n_needs; i++)
	{
		t->need_in_line[i] = is_in_line(&needs[i]);
		t->n_any[i] = split(needs[i], '+', ids, MAX_CHILD);
		for (int j = 0; j < t->n_any[i]; j++)
			if (!understand_hex(ids[j], &t->any_of[n++]))
				return false;
	}
	return true;
}

static bool
understand_dependents(char *text, Told *t)
{
	char	   *ids[MAX_CHILD];

	t->n_dependents = text[0] == '\0' ? 0 : split(text, ',', ids, MAX_CHILD);
	for (int i = 0; i < t->n_dependents; i++)
	{
		t->dependent_in_line[i] = is_in_line(&ids[i]);
		if (!understand_hex(ids[i], &t->dependents[i]))
			return false;
	}
	return true;
}

static bool
understand_number(const char *text, int32_t *number)
{
	const char *digits = text + (text[0] == '-');
	size_t		length = strlen(digits);
	long long	value = strtoll(text, NULL, 10);

	*number = (int32_t) value;
	return length >= 1 && length <= 11 && strspn(digits, "0123456789") == length &&
		value == *number;
}

static bool
understand(const char *name, Told *t)
{
	char		text[MAX_CHILD];
	char	   *fields[MAX_CHILD];
	const char *kind;

	memset(t, 0, sizeof(*t));
	strcpy(text, name);
	if (split(text, '.', fields, MAX_CHILD) != N_FIELDS)
		return false;
	kind = fields[3];
	t->claims = kind[0] == 'c';
	return understand_hex(fields[0], &t->session) && understand_hex(fields[1], &t->wait) &&
		understand_hex(fields[2], &t->version) &&
		(kind[0] == 'c' || kind[0] == 'w') && kind[1] == '\0' &&
		understand_needs(fields[4], t) && understand_dependents(fields[5], t) &&
		understand_number(fields[6], &t->number);
}


/*
 * Judging
 */

static bool
is_newer(int a, int b)
{
	return zkl_is_before(told[b].number, children[b], told[a].number, children[a]);
}

static bool
rival(int a, int b)
{
	return is_name[a] && is_name[b] && told[a].session == told[b].session;
}

/* Numbers of half the range, which a server never gives, go round in a circle. */
static bool
goes_round(int i)
{
	for (int a = 0; a < n_children; a++)
		for (int b = 0; b < n_children; b++)
			for (int c = 0; c < n_children; c++)
				if (rival(i, a) && rival(i, b) && rival(i, c) &&
					is_newer(a, b) && is_newer(b, c) && is_newer(c, a))
					return true;
	return false;
}

static bool
is_newest(int i)
{
	for (int other = 0; other < n_children; other++)
		if (rival(i, other) && is_newer(other, i))
			return false;
	return true;
}

static void
check_needs(const ZklWaitPicture *picture, const ZklWaitNode *node, const Told *t)
{
	const ZklNeed *need = &picture->needs[node->first_need];
	const uint64_t *id = t->any_of;

	for (int i = 0; i < t->n_needs; i++, need++)
	{
		must(need->waiter == t->session && need->n == t->n_any[i] &&
			 need->in_line == t->need_in_line[i] &&
			 need->source == node - picture->nodes, "need %d of %s", i, node->name);
		must(memcmp(need->any_of, id, sizeof(*id) * (size_t) need->n) == 0,
			 "ids of need %d of %s", i, node->name);
		id += need->n;
	}
	for (int i = 0; i < t->n_dependents; i++, need++)
		must(need->waiter == t->dependents[i] && need->n == 1 &&
			 need->in_line == t->dependent_in_line[i] &&
			 need->any_of[0] == t->session && need->source == node - picture->nodes,
			 "dependent %d of %s", i, node->name);
}

static void
check_node(const ZklWaitPicture *picture, const ZklWaitNode *node, int i)
{
	const Told *t = &told[i];
	char		prefix[24];

	snprintf(prefix, sizeof(prefix), "%" PRIx64 ".", t->session);
	must(node->session == t->session && node->wait == t->wait && node->claims == t->claims &&
		 node->number == t->number &&
		 node->n_needs == t->n_needs && node->n_dependents == t->n_dependents,
		 "%s is read otherwise", node->name);
	check_needs(picture, node, t);
	must(zkl_is_wait_of(node->name, t->session) ==
		 (strncmp(node->name, prefix, strlen(prefix)) == 0), "whose is %s?", node->name);
	must(!zkl_is_wait_of(node->name, t->session + 1), "whose is %s?", node->name);
}

static void
check_picture(const ZklWaitPicture *picture)
{
	int			n = 0;
	int			n_needs = 0;

	for (int i = 0; i < n_children; i++)
	{
		const ZklWaitNode *node = &picture->nodes[n];
		bool		is_there = n < picture->n && node->name == children[i];

		if (!is_name[i])
			must(!is_there, "%s is no name", children[i]);
		else if (!goes_round(i))
		{
			must(is_there == is_newest(i), "%s is %sthere", children[i], is_there ? "" : "not ");
			must(!is_there || zkl_picture_find(picture, node->session) == node,
				 "%s is not found", children[i]);
		}
		if (is_there)
		{
			must(node->first_need == n_needs, "needs of %s begin at %d", node->name, node->first_need);
			check_node(picture, node, i);
			n_needs += node->n_needs + node->n_dependents;
			n++;
		}
	}
	must(n == picture->n && n_needs == picture->n_needs, "%d of %d nodes, %d of %d needs",
		 n, picture->n, n_needs, picture->n_needs);
}

/* A name that was written, such a name with a change, or any bytes. */
static void
take_child(Input *input)
{
	static const char bytes[] = ".,+-0cwpfg";
	unsigned	kind = take(input);
	char		name[MAX_CHILD] = "";
	Told	   *t = &told[n_children];
	Told		written = {0};

	if (kind < 224)
	{
		take_told(input, &written);
		write_name(&written, name);
	}
	else
		take_text(input, name, sizeof(name) - 1, '/');
	if (kind >= 160)
	{
		size_t		at = take(input) % (strlen(name) + 1);

		if (kind & 1)			/* one more */
			memmove(name + at + 1, name + at, strlen(name + at) + 1);
		name[at] = bytes[take(input) % (sizeof(bytes) - 1)];
	}
	for (int i = 0; i < n_children; i++)
		if (strcmp(children[i], name) == 0)
			return;
	is_name[n_children] = understand(name, t);
	must(kind >= 160 || (is_name[n_children] && memcmp(t, &written, sizeof(*t)) == 0),
		 "the oracle does not understand %s", name);
	children[n_children++] = strdup(name);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input		input = {data, size};
	ZklWaitPicture picture;

	n_children = 0;
	while (input.left > 0 && n_children < MAX_CHILDREN)
		take_child(&input);
	must(zkl_picture_read((const char *const *) children, n_children, &picture), "no memory");
	check_picture(&picture);
	zkl_picture_free(&picture);
	while (n_children > 0)
		free(children[--n_children]);
	return 0;
}
