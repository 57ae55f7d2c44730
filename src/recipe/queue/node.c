/*-------------------------------------------------------------------------
 *
 * node.c
 *		Names of lock nodes, their order, and a node's position in a queue.
 *
 * The node names are those of Curator's InterProcessReadWriteLock and
 * InterProcessMutex and of kazoo's Lock, WriteLock and ReadLock.  Pure functions,
 * called on any thread.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node.h"

typedef struct Dialect
{
	const char *prefix;			/* before the GUID */
	const char *separator;		/* between the groups of the GUID, and behind it */
	const char *reader;			/* before the number; NULL: no such mode */
	const char *writer;
} Dialect;

static const Dialect all_node_names[] = {
	[ZKL_NODE_NAMES_CURATOR] = {"_c_", "-", "__READ__", "__WRIT__"},
	[ZKL_NODE_NAMES_CURATOR_MUTEX] = {"_c_", "-", NULL, "lock-"},
	[ZKL_NODE_NAMES_KAZOO] = {"", "", "__rlock__", "__lock__"},
};

#define N_NODE_NAMES ((int) (sizeof(all_node_names) / sizeof(all_node_names[0])))

/* The server formats with "%010d": at least ten characters, including a sign. */
#define MIN_NUMBER_LENGTH 10
#define MAX_NUMBER_DIGITS 10


static bool
is_plain(unsigned char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
		(c >= '0' && c <= '9') || (c != '\0' && strchr("_.:@~+=-", c));
}

void
zkl_encode_name(const char *name, size_t length, char *out)
{
	bool		dots = (length == 1 && name[0] == '.') ||
		(length == 2 && name[0] == '.' && name[1] == '.');

	for (size_t i = 0; i < length; i++)
	{
		unsigned char c = (unsigned char) name[i];

		if (is_plain(c) && !dots)
			*out++ = (char) c;
		else
			out += sprintf(out, "%%%02X", c);
	}
	*out = '\0';
}

static bool
ends_with(const char *s, size_t length, const char *suffix)
{
	size_t		n = strlen(suffix);

	return length >= n && memcmp(s + length - n, suffix, n) == 0;
}

/* Returns whether the text before a number is the infix of a known scheme. */
static bool
known_infix(const char *name, size_t length, bool *writer)
{
	for (int i = 0; i < N_NODE_NAMES; i++)
	{
		if (all_node_names[i].reader && ends_with(name, length, all_node_names[i].reader))
		{
			*writer = false;
			return true;
		}
		if (ends_with(name, length, all_node_names[i].writer))
		{
			*writer = true;
			return true;
		}
	}
	return false;
}

static int
hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

bool
zkl_parse_owner(const char *name, uint64_t *owner)
{
	int			digits = 0;

	if (strncmp(name, "_c_", 3) == 0)
		name += 3;
	*owner = 0;
	for (; digits < 16; name++)
	{
		int			value = hex_value(*name);

		if (value >= 0)
		{
			*owner = *owner << 4 | (uint64_t) value;
			digits++;
		}
		else if (*name != '-' || digits == 0)
			return false;
	}
	return true;
}

bool
zkl_parse_child(const char *name, ZklContender *contender)
{
	size_t		length = strlen(name);
	size_t		start = length;
	bool		negative = false;
	int64_t		number;

	while (start > 0 && name[start - 1] >= '0' && name[start - 1] <= '9')
		start--;
	if (length - start == 0 || length - start > MAX_NUMBER_DIGITS)
		return false;

	/* A dash may belong to the infix ("lock-") or be the sign. */
	if (!known_infix(name, start, &contender->writer))
	{
		if (start == 0 || name[start - 1] != '-' ||
			!known_infix(name, start - 1, &contender->writer))
			return false;
		negative = true;
	}
	if (length - start + (negative ? 1 : 0) < MIN_NUMBER_LENGTH)
		return false;

	number = strtoll(name + start, NULL, 10);
	if (negative)
		number = -number;
	if (number < INT32_MIN || number > INT32_MAX)
		return false;
	contender->number = (int32_t) number;
	contender->has_owner = zkl_parse_owner(name, &contender->owner);
	return true;
}

static char *
put_text(char *out, const char *text)
{
	size_t		n = strlen(text);

	memcpy(out, text, n + 1);
	return out + n;
}

/* Writes hex digits and a separator; without printf(), because each request does this. */
static char *
put_group(char *out, uint64_t value, int digits, const char *separator)
{
	for (int i = digits - 1; i >= 0; i--, value >>= 4)
		out[i] = "0123456789abcdef"[value & 0xf];
	return put_text(out + digits, separator);
}

size_t
zkl_guid(ZklNodeNames node_names, int64_t session_id, uint64_t counter,
		 char out[ZKL_CHILD_NAME_SIZE])
{
	const Dialect *d = &all_node_names[node_names];
	uint64_t	id = (uint64_t) session_id;
	char	   *end = put_text(out, d->prefix);

	end = put_group(end, id >> 32, 8, d->separator);
	end = put_group(end, id >> 16, 4, d->separator);
	end = put_group(end, id, 4, d->separator);
	end = put_group(end, counter >> 48, 4, d->separator);
	end = put_group(end, counter, 12, d->separator);
	return (size_t) (end - out);
}

static const char *
infix_of(ZklNodeNames node_names, ZklMode mode)
{
	return mode == ZKL_MODE_SHARED ? all_node_names[node_names].reader : all_node_names[node_names].writer;
}

bool
zkl_has_mode(ZklNodeNames node_names, ZklMode mode)
{
	return infix_of(node_names, mode) != NULL;
}

bool
zkl_child_prefix(ZklNodeNames node_names, ZklMode mode, int64_t session_id,
				 uint64_t counter, char out[ZKL_CHILD_NAME_SIZE])
{
	if (!zkl_has_mode(node_names, mode))
		return false;
	put_text(out + zkl_guid(node_names, session_id, counter, out),
			 infix_of(node_names, mode));
	return true;
}

bool
zkl_child_name(ZklNodeNames node_names, ZklMode mode, int64_t session_id,
			   uint64_t counter, int32_t number, char out[ZKL_CHILD_NAME_SIZE])
{
	size_t		n;

	if (!zkl_child_prefix(node_names, mode, session_id, counter, out))
		return false;
	n = strlen(out);
	snprintf(out + n, ZKL_CHILD_NAME_SIZE - n, "%010" PRId32, number);
	return true;
}

const char *
zkl_find_child(const char *const *children, int n_children, const char *prefix)
{
	size_t		n = strlen(prefix);
	ZklContender unused;

	for (int i = 0; i < n_children; i++)
		if (strncmp(children[i], prefix, n) == 0 &&
			children[i][n + strspn(children[i] + n, "-0123456789")] == '\0' &&
			zkl_parse_child(children[i], &unused))
			return children[i];
	return NULL;
}

bool
zkl_is_before(int32_t a_number, const char *a_name,
			  int32_t b_number, const char *b_name)
{
	uint32_t	distance = (uint32_t) b_number - (uint32_t) a_number;

	if (distance == 0)
		return strcmp(a_name, b_name) < 0;
	if (distance == UINT32_C(0x80000000))
		return a_number < b_number;
	return distance < UINT32_C(0x80000000);
}

/* A contender together with its name. */
typedef struct Found
{
	const char *name;			/* NULL: none */
	ZklContender c;
} Found;

static bool
found_before(const Found *a, const Found *b)
{
	return zkl_is_before(a->c.number, a->name, b->c.number, b->name);
}

/* The children of a lock's znode, and which of them are the caller's. */
typedef struct Queue
{
	const char *const *children;
	int			n_children;
	const char *const *mine;
	int			n_mine;
} Queue;

static bool
is_mine(const Queue *queue, const char *name)
{
	for (int i = 0; i < queue->n_mine; i++)
		if (strcmp(queue->mine[i], name) == 0)
			return true;
	return false;
}

/* Finds the next contender from *i on that is not the caller's. */
static bool
next_foreign(const Queue *queue, int *i, Found *found)
{
	while (*i < queue->n_children)
	{
		found->name = queue->children[(*i)++];
		if (zkl_parse_child(found->name, &found->c) && !is_mine(queue, found->name))
			return true;
	}
	return false;
}

/* Sessions, in ascending order. */
typedef struct Owners
{
	uint64_t   *ids;			/* NULL: none, or memory was exhausted */
	int			n;
} Owners;

/*
 * Returns the sessions that have a writer node before "own"; the caller frees the
 * ids.  If memory is exhausted there are none: then the deadlock search of the
 * waiting sessions finds the deadlock, later.
 */
static Owners
writers_before(const Queue *queue, const Found *own)
{
	Owners		writers = {malloc(((size_t) queue->n_children + 1) * sizeof(uint64_t)), 0};
	Found		f;
	int			i = 0;

	while (writers.ids && next_foreign(queue, &i, &f))
		if (f.c.writer && f.c.has_owner && f.c.owner != own->c.owner &&
			found_before(&f, own))
			writers.ids[writers.n++] = f.c.owner;
	zkl_sort_ids(writers.ids, writers.n);
	return writers;
}

/* Returns the first foreign writer before "own", if any. */
static Found
first_writer(const Queue *queue, const Found *own)
{
	Found		first = {.name = NULL};
	Found		f;
	int			i = 0;

	while (next_foreign(queue, &i, &f))
		if (f.c.writer && found_before(&f, own) &&
			(first.name == NULL || found_before(&f, &first)))
			first = f;
	return first;
}

/*
 * An upgrade waits only for readers that may hold the lock: those before the
 * first foreign writer.  Readers behind that writer wait for it, and would be
 * granted if it gave up.  So the upgrade first moves its own node up to the
 * writer's number, where it blocks these readers as well.
 */
static ZklPosition
position_of_upgrade(const Queue *queue, const Found *own, const char **other)
{
	Found		writer = first_writer(queue, own);
	Owners		writers = writers_before(queue, own);
	Found		sharer = {.name = NULL};
	Found		f;
	bool		deadlock = false;
	int			i = 0;

	while (!deadlock && next_foreign(queue, &i, &f))
	{
		if (f.c.writer || !found_before(&f, own) ||
			(writer.name != NULL && found_before(&writer, &f)))
			continue;
		deadlock = f.c.has_owner && zkl_find_id(writers.ids, writers.n, f.c.owner) >= 0;
		if (deadlock || sharer.name == NULL || found_before(&sharer, &f))
			sharer = f;
	}
	free(writers.ids);
	if (deadlock)
	{
		*other = sharer.name;
		return ZKL_POSITION_DEADLOCK;
	}

	if (writer.name != NULL && writer.c.number != own->c.number)
	{
		*other = writer.name;
		return ZKL_POSITION_MOVE_UP;
	}
	*other = sharer.name;
	return sharer.name ? ZKL_POSITION_BEHIND : ZKL_POSITION_FIRST;
}

/* A reader waits for the nearest writer before it, a writer for the nearest node. */
static ZklPosition
position_of_newcomer(const Queue *queue, const Found *own, const char **other)
{
	Found		nearest = {.name = NULL};
	Found		f;
	int			i = 0;

	while (next_foreign(queue, &i, &f))
		if ((own->c.writer || f.c.writer) && found_before(&f, own) &&
			(nearest.name == NULL || found_before(&nearest, &f)))
			nearest = f;
	*other = nearest.name;
	return nearest.name ? ZKL_POSITION_BEHIND : ZKL_POSITION_FIRST;
}

ZklPosition
zkl_position(const char *const *children, int n_children,
			 const char *const *mine, int n_mine,
			 bool upgrade, const char **other)
{
	Queue		queue = {children, n_children, mine, n_mine};
	Found		own = {.name = mine[0]};
	bool		present = false;

	*other = NULL;
	for (int i = 0; i < n_children && !present; i++)
		present = strcmp(children[i], own.name) == 0;
	if (!present || !zkl_parse_child(own.name, &own.c))
		return ZKL_POSITION_GONE;
	if (upgrade)
		return position_of_upgrade(&queue, &own, other);
	return position_of_newcomer(&queue, &own, other);
}


/*
 * Which program created a node
 */

static bool
is_hex(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (hex_value(s[i]) < 0)
			return false;
	return true;
}

/* A UUID as Curator writes it: 8-4-4-4-12 digits. */
static bool
is_uuid(const char *s)
{
	return is_hex(s, 8) && s[8] == '-' && is_hex(s + 9, 4) && s[13] == '-' &&
		is_hex(s + 14, 4) && s[18] == '-' && is_hex(s + 19, 4) && s[23] == '-' &&
		is_hex(s + 24, 12);
}

static bool
is_infix_and_number(const char *s, const char *infix)
{
	size_t		n = strlen(infix);

	if (strncmp(s, infix, n) != 0)
		return false;
	s += n;
	if (*s == '-')
		s++;
	return *s != '\0' && s[strspn(s, "0123456789")] == '\0';
}

ZklMaker
zkl_maker(const char *child, int64_t session_id)
{
	static const char *const curator[] = {"lock-", "__READ__", "__WRIT__", "lease-"};
	uint64_t	owner;

	if (session_id != 0 && zkl_parse_owner(child, &owner) &&
		owner == (uint64_t) session_id)
		return ZKL_MAKER_ZKLOCK;
	if (strncmp(child, "_c_", 3) == 0 && is_uuid(child + 3) && child[39] == '-')
		for (int i = 0; i < 4; i++)
			if (is_infix_and_number(child + 40, curator[i]))
				return ZKL_MAKER_CURATOR;
	if (is_hex(child, 32) &&
		(child[32] == '\0' || is_infix_and_number(child + 32, "__lock__") ||
		 is_infix_and_number(child + 32, "__rlock__")))
		return ZKL_MAKER_KAZOO;
	return ZKL_MAKER_OTHER;
}
