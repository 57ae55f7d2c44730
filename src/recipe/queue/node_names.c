/*-------------------------------------------------------------------------
 *
 * node_names.c
 *		Names of lock nodes; the name of a lock's znode; a semaphore's capacity as its data.
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

#include "node_names.h"

/* How a program names its nodes: prefix, GUID, infix, number. */
typedef struct NodeNames
{
	ZklMaker	maker;
	const char *prefix;
	const char *separator;		/* between the groups of the GUID, and behind it */
	const char *reader;			/* infix; NULL: no such mode */
	const char *writer;			/* infix */
} NodeNames;

static const NodeNames all_node_names[] = {
	[ZKL_NODE_NAMES_CURATOR] = {ZKL_MAKER_CURATOR, "_c_", "-", "__READ__", "__WRIT__"},
	[ZKL_NODE_NAMES_CURATOR_MUTEX] = {ZKL_MAKER_CURATOR, "_c_", "-", NULL, "lock-"},
	[ZKL_NODE_NAMES_KAZOO] = {ZKL_MAKER_KAZOO, "", "", "__rlock__", "__lock__"},
};

/* The infix of permits, which have Curator's names. */
#define PERMIT_INFIX "lease-"

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

size_t
zkl_encode_name(const char *name, size_t length, char *out)
{
	const char *begin = out;
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
	return (size_t) (out - begin);
}

static bool
begins_with(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

static bool
ends_with(const char *s, size_t length, const char *suffix)
{
	size_t		n = strlen(suffix);

	return length >= n && memcmp(s + length - n, suffix, n) == 0;
}

/* Returns whether the text before a number is the infix of a known scheme. */
static bool
is_known_infix(const char *name, size_t length, bool *writer)
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

const char *
zkl_parse_guid(const char *name, uint64_t *owner, uint64_t *guid_end)
{
	uint64_t	halves[2] = {0};
	int			digits = 0;
	size_t		prefix_length = 0;

	for (int i = 0; i < N_NODE_NAMES && prefix_length == 0; i++)
		if (begins_with(name, all_node_names[i].prefix))
			prefix_length = strlen(all_node_names[i].prefix);
	*owner = 0;
	*guid_end = 0;
	for (name += prefix_length; digits < 32; name++)
	{
		int			value = hex_value(*name);
		uint64_t   *half = &halves[digits / 16];

		if (value >= 0)
		{
			*half = *half << 4 | (uint64_t) value;
			digits++;
		}
		else if (*name != '-' || digits == 0)
			return NULL;
	}
	*owner = halves[0];
	*guid_end = halves[1];
	return name;
}

static const char *const keep_words[] = {
	[ZKL_KEEP_MAY] = ZKL_KEEP_WORD,
	[ZKL_KEEP_ASKED] = " keep=ask",
	[ZKL_KEEP_IN_USE] = " keep=use"
};

ZklKeepState
zkl_parse_keep(const char *data, int data_len)
{
	for (int state = ZKL_KEEP_MAY; state <= ZKL_KEEP_IN_USE; state++)
		if (data_len >= ZKL_KEEP_LENGTH &&
			memcmp(data + data_len - ZKL_KEEP_LENGTH, keep_words[state], ZKL_KEEP_LENGTH) == 0)
			return (ZklKeepState) state;
	return ZKL_KEEP_NEVER;
}

bool
zkl_is_kept(const char *data, int data_len)
{
	ZklKeepState state = zkl_parse_keep(data, data_len);

	return state == ZKL_KEEP_MAY || state == ZKL_KEEP_ASKED;
}

void
zkl_set_keep(char *data, int data_len, ZklKeepState state)
{
	memcpy(data + data_len - ZKL_KEEP_LENGTH, keep_words[state], ZKL_KEEP_LENGTH);
}

uint64_t
zkl_guid_end(uint32_t tag, uint32_t counter)
{
	return (uint64_t) tag << 32 | counter;
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
	if (!is_known_infix(name, start, &contender->writer))
	{
		if (start == 0 || name[start - 1] != '-' ||
			!is_known_infix(name, start - 1, &contender->writer))
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
	contender->has_owner = zkl_parse_guid(name, &contender->owner, &contender->guid_end) != NULL;
	contender->has_our_form = contender->has_owner &&
		begins_with(name, "_c_") == (strchr(name, '-') == name + strlen("_c_12345678"));
	return true;
}

bool
zkl_is_zklocks(const ZklContender *contender)
{
	return contender->has_our_form && contender->guid_end >> 32 <= ZKL_MAX_SERVER_TAG;
}

bool
zkl_may_be_kept(const ZklContender *contender)
{
	return zkl_is_zklocks(contender) && zkl_has_keep_bit(contender->guid_end);
}

bool
zkl_is_upgrade(const ZklContender *contender)
{
	return zkl_is_zklocks(contender) && (contender->guid_end & ZKL_UPGRADE_BIT) != 0;
}

bool
zkl_is_contender(const char *child)
{
	ZklContender unused;

	return zkl_parse_child(child, &unused);
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

/* Writes a name up to its GUID, made of session id and zkl_guid_end(); returns the end. */
static char *
put_guid(ZklNodeNames node_names, int64_t session_id, uint64_t guid_end, char *out)
{
	const NodeNames *names = &all_node_names[node_names];
	uint64_t	id = (uint64_t) session_id;
	char	   *end = put_text(out, names->prefix);

	end = put_group(end, id >> 32, 8, names->separator);
	end = put_group(end, id >> 16, 4, names->separator);
	end = put_group(end, id, 4, names->separator);
	end = put_group(end, guid_end >> 48, 4, names->separator);
	return put_group(end, guid_end, 12, names->separator);
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
				 uint64_t guid_end, char out[ZKL_CHILD_NAME_SIZE])
{
	if (!zkl_has_mode(node_names, mode))
		return false;
	put_text(put_guid(node_names, session_id, guid_end, out), infix_of(node_names, mode));
	return true;
}

void
zkl_permit_prefix(int64_t session_id, uint64_t guid_end, char out[ZKL_CHILD_NAME_SIZE])
{
	put_text(put_guid(ZKL_NODE_NAMES_CURATOR, session_id, guid_end, out), PERMIT_INFIX);
}

bool
zkl_child_name(ZklNodeNames node_names, ZklMode mode, int64_t session_id,
			   uint64_t guid_end, int32_t number, char out[ZKL_CHILD_NAME_SIZE])
{
	size_t		n;

	if (!zkl_child_prefix(node_names, mode, session_id, guid_end, out))
		return false;
	n = strlen(out);
	snprintf(out + n, ZKL_CHILD_NAME_SIZE - n, "%010" PRId32, number);
	return true;
}

const char *
zkl_find_child(const char *const *children, int n_children, const char *prefix)
{
	size_t		n = strlen(prefix);

	for (int i = 0; i < n_children; i++)
		if (strncmp(children[i], prefix, n) == 0 &&
			children[i][n + strspn(children[i] + n, "-0123456789")] == '\0')
			return children[i];
	return NULL;
}


/*
 * Which program created a node
 */

/* By its GUID, and what follows. */
ZklMaker
zkl_maker(const char *child, int64_t session_id)
{
	uint64_t	owner;
	uint64_t	guid_end;
	const char *end = zkl_parse_guid(child, &owner, &guid_end);

	if (end == NULL)
		return ZKL_MAKER_OTHER;
	if (session_id != 0 && owner == (uint64_t) session_id)
		return ZKL_MAKER_ZKLOCK;
	for (int i = 0; i < N_NODE_NAMES; i++)
	{
		const NodeNames *names = &all_node_names[i];
		const char *infix = end + strlen(names->separator);

		if (begins_with(child, names->prefix) && begins_with(end, names->separator) &&
			(begins_with(infix, PERMIT_INFIX) ||
			 (zkl_is_contender(child) && (begins_with(infix, names->writer) ||
										  (names->reader && begins_with(infix, names->reader))))))
			return names->maker;
	}
	return ZKL_MAKER_OTHER;
}


/*
 * Semaphores
 */

/* The most digits that always fit into an int. */
#define MAX_CAPACITY_DIGITS 9

bool
zkl_parse_capacity(const char *data, int data_len, int *capacity)
{
	int			number = 0;

	if (data_len <= 0 || data_len > MAX_CAPACITY_DIGITS)	/* -1: null */
		return false;
	for (int i = 0; i < data_len; i++)
	{
		if (data[i] < '0' || data[i] > '9')
			return false;
		number = number * 10 + (data[i] - '0');
	}
	*capacity = number;
	return true;
}
