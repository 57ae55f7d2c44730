/*-------------------------------------------------------------------------
 *
 * node.c
 *		Names of lock nodes, their order, and who stands before whom.
 *
 * The node names are those of Curator's InterProcessReadWriteLock and
 * InterProcessMutex and of kazoo's Lock, WriteLock and ReadLock.  Must never
 * do I/O or allocate; called by the rest of the recipe layer on any thread.
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
	const char *guid_format;	/* session's upper 32, next 16, 16; counter's 16, 48 bits */
	const char *reader;			/* what stands before the number, or NULL */
	const char *writer;
} Dialect;

#define CURATOR_GUID "_c_%08" PRIx32 "-%04x-%04x-%04x-%012" PRIx64 "-"
#define KAZOO_GUID "%08" PRIx32 "%04x%04x%04x%012" PRIx64

static const Dialect dialects[] = {
	[ZKL_DIALECT_CURATOR] = {CURATOR_GUID, "__READ__", "__WRIT__"},
	[ZKL_DIALECT_CURATOR_MUTEX] = {CURATOR_GUID, NULL, "lock-"},
	[ZKL_DIALECT_KAZOO] = {KAZOO_GUID, "__rlock__", "__lock__"},
};

#define N_DIALECTS ((int) (sizeof(dialects) / sizeof(dialects[0])))

/* "%010d": at least ten characters, a sign included */
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

/* Is the text before a number one that a dialect ends its names with? */
static bool
known_infix(const char *name, size_t length, bool *writer)
{
	for (int i = 0; i < N_DIALECTS; i++)
	{
		if (dialects[i].reader && ends_with(name, length, dialects[i].reader))
		{
			*writer = false;
			return true;
		}
		if (ends_with(name, length, dialects[i].writer))
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

/* The first 64 bits of the GUID with which a name begins, if it does. */
static bool
parse_owner(const char *name, uint64_t *owner)
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

	/* A dash may be the infix's own ("lock-") or the sign. */
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
	contender->has_owner = parse_owner(name, &contender->owner);
	return true;
}

size_t
zkl_guid(ZklDialect dialect, int64_t session_id, uint64_t counter,
		 char out[ZKL_CHILD_NAME_SIZE])
{
	uint64_t	id = (uint64_t) session_id;

	return (size_t) snprintf(out, ZKL_CHILD_NAME_SIZE, dialects[dialect].guid_format,
							 (uint32_t) (id >> 32), (unsigned) (id >> 16 & 0xffff),
							 (unsigned) (id & 0xffff), (unsigned) (counter >> 48),
							 counter & UINT64_C(0xffffffffffff));
}

bool
zkl_child_prefix(ZklDialect dialect, ZklMode mode, int64_t session_id,
				 uint64_t counter, char out[ZKL_CHILD_NAME_SIZE])
{
	const Dialect *d = &dialects[dialect];
	const char *infix = mode == ZKL_MODE_SHARED ? d->reader : d->writer;
	size_t		n;

	if (infix == NULL)
		return false;
	n = zkl_guid(dialect, session_id, counter, out);
	snprintf(out + n, ZKL_CHILD_NAME_SIZE - n, "%s", infix);
	return true;
}

bool
zkl_child_name(ZklDialect dialect, ZklMode mode, int64_t session_id,
			   uint64_t counter, int32_t number, char out[ZKL_CHILD_NAME_SIZE])
{
	size_t		n;

	if (!zkl_child_prefix(dialect, mode, session_id, counter, out))
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

/* A contender together with its name: what the scans below remember. */
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

/* What one looks at: the children, and which of them are one's own. */
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

/* The next contender from *i on that is not one's own. */
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

/* Does this sharer's session also have a writer node before "own"? */
static bool
upgrades_before(const Queue *queue, const ZklContender *sharer, const Found *own)
{
	Found		f;
	int			i = 0;

	if (!sharer->has_owner || sharer->owner == own->c.owner)
		return false;
	while (next_foreign(queue, &i, &f))
		if (f.c.writer && f.c.has_owner && f.c.owner == sharer->owner &&
			found_before(&f, own))
			return true;
	return false;
}

/* The first foreign writer before "own", if any. */
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
 * let in if it gave up; so the upgrade first moves its own node to the
 * writer's number (BAR), which blocks them as well.
 */
static ZklStanding
standing_of_upgrade(const Queue *queue, const Found *own, const char **other)
{
	Found		writer = first_writer(queue, own);
	Found		sharer = {.name = NULL};
	Found		f;
	int			i = 0;

	while (next_foreign(queue, &i, &f))
	{
		if (f.c.writer || !found_before(&f, own) ||
			(writer.name != NULL && found_before(&writer, &f)))
			continue;
		if (upgrades_before(queue, &f.c, own))
			return ZKL_STANDING_DEADLOCK;
		if (sharer.name == NULL || found_before(&sharer, &f))
			sharer = f;
	}

	if (writer.name != NULL && writer.c.number != own->c.number)
	{
		*other = writer.name;
		return ZKL_STANDING_BAR;
	}
	*other = sharer.name;
	return sharer.name ? ZKL_STANDING_BEHIND : ZKL_STANDING_FIRST;
}

/* A reader waits for the nearest writer before it, a writer for the nearest node. */
static ZklStanding
standing_of_newcomer(const Queue *queue, const Found *own, const char **other)
{
	Found		nearest = {.name = NULL};
	Found		f;
	int			i = 0;

	while (next_foreign(queue, &i, &f))
		if ((own->c.writer || f.c.writer) && found_before(&f, own) &&
			(nearest.name == NULL || found_before(&nearest, &f)))
			nearest = f;
	*other = nearest.name;
	return nearest.name ? ZKL_STANDING_BEHIND : ZKL_STANDING_FIRST;
}

ZklStanding
zkl_standing(const char *const *children, int n_children,
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
		return ZKL_STANDING_GONE;
	if (upgrade)
		return standing_of_upgrade(&queue, &own, other);
	return standing_of_newcomer(&queue, &own, other);
}
