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
	const char *prefix;			/* what stands before the GUID */
	const char *separator;		/* what stands between its groups, and behind it */
	const char *reader;			/* what stands before the number, or NULL */
	const char *writer;
} Dialect;

static const Dialect dialects[] = {
	[ZKL_DIALECT_CURATOR] = {"_c_", "-", "__READ__", "__WRIT__"},
	[ZKL_DIALECT_CURATOR_MUTEX] = {"_c_", "-", NULL, "lock-"},
	[ZKL_DIALECT_KAZOO] = {"", "", "__rlock__", "__lock__"},
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

/* The digits of a number, and what follows.  Every request has such names, so not with printf(). */
static char *
put_group(char *out, uint64_t value, int digits, const char *separator)
{
	for (int i = digits - 1; i >= 0; i--, value >>= 4)
		out[i] = "0123456789abcdef"[value & 0xf];
	return put_text(out + digits, separator);
}

size_t
zkl_guid(ZklDialect dialect, int64_t session_id, uint64_t counter,
		 char out[ZKL_CHILD_NAME_SIZE])
{
	const Dialect *d = &dialects[dialect];
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
infix_of(ZklDialect dialect, ZklMode mode)
{
	return mode == ZKL_MODE_SHARED ? dialects[dialect].reader : dialects[dialect].writer;
}

bool
zkl_has_mode(ZklDialect dialect, ZklMode mode)
{
	return infix_of(dialect, mode) != NULL;
}

bool
zkl_child_prefix(ZklDialect dialect, ZklMode mode, int64_t session_id,
				 uint64_t counter, char out[ZKL_CHILD_NAME_SIZE])
{
	if (!zkl_has_mode(dialect, mode))
		return false;
	put_text(out + zkl_guid(dialect, session_id, counter, out),
			 infix_of(dialect, mode));
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

int
zkl_blockers(const char *const *children, int n_children, const char *name,
			 bool upgrade, uint64_t *owners)
{
	Queue		queue = {children, n_children, &name, 1};
	Found		own = {.name = name};
	Found		writer = {.name = NULL};
	Found		f;
	int			n = 0;
	bool		present = false;

	for (int i = 0; i < n_children && !present; i++)
		present = strcmp(children[i], name) == 0;
	if (!present || !zkl_parse_child(name, &own.c))
		return -1;
	if (upgrade)
		writer = first_writer(&queue, &own);
	for (int i = 0; next_foreign(&queue, &i, &f);)
	{
		if (!f.c.has_owner || (own.c.has_owner && f.c.owner == own.c.owner) ||
			!found_before(&f, &own))
			continue;
		if (upgrade ? f.c.writer || (writer.name && found_before(&writer, &f))
			: !f.c.writer && !own.c.writer)
			continue;
		owners[n++] = f.c.owner;
	}
	return n;
}


/*
 * Seen from outside
 */

/*
 * Distances from one of the numbers are a total order whatever the numbers are;
 * comparing the numbers themselves, which wrap, would not be one.
 */
static int
compare_queued(const void *a, const void *b)
{
	const ZklQueued *qa = a;
	const ZklQueued *qb = b;

	if (qa->distance != qb->distance)
		return qa->distance < qb->distance ? -1 : 1;
	return strcmp(qa->name, qb->name);
}

void
zkl_sort_queue(ZklQueued *queue, int n)
{
	uint32_t	origin = n > 0 ? (uint32_t) queue[0].contender.number : 0;

	for (int i = 0; i < n; i++)
		queue[i].distance = (uint32_t) queue[i].contender.number - origin +
			UINT32_C(0x80000000);
	if (n > 1)
		qsort(queue, (size_t) n, sizeof(ZklQueued), compare_queued);
}

static bool
same_owner(const ZklQueued *a, const ZklQueued *b)
{
	return a->contender.has_owner && b->contender.has_owner &&
		a->contender.owner == b->contender.owner;
}

/* The reader that writer "w" builds on, among the first n_readers; -1: none. */
static int
anchor_of(const ZklQueued *queue, int n_readers, int w)
{
	for (int i = 0; i < n_readers; i++)
		if (same_owner(&queue[i], &queue[w]))
			return i;
	return -1;
}

/*
 * The readers before the first writer hold it; that writer and those of its
 * number do when all these readers are their own session's, or there are none.
 */
void
zkl_grant_queue(ZklQueued *queue, int n)
{
	int			first = 0;		/* the first writer */
	int			n_readers;		/* before its number */
	bool		alone = true;	/* all of them are one session's */
	bool		taken = false;

	while (first < n && !queue[first].contender.writer)
		first++;
	for (n_readers = first; n_readers > 0 && first < n &&
		 queue[n_readers - 1].distance == queue[first].distance;)
		n_readers--;
	for (int i = 1; i < n_readers; i++)
		alone = alone && same_owner(&queue[0], &queue[i]);
	for (int i = 0; i < n; i++)
	{
		ZklQueued  *q = &queue[i];
		bool		early = first == n || q->distance <= queue[first].distance;

		q->anchor = q->contender.writer ? anchor_of(queue, n_readers, i) : -1;
		q->granted = early && (!q->contender.writer ||
							   (!taken && (n_readers == 0 || (alone && q->anchor >= 0))));
		taken = taken || (q->granted && q->contender.writer);
	}
}

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
