/*-------------------------------------------------------------------------
 *
 * wait_name.c
 *		Names of the nodes below <root>/waits: who waits for whom.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node.h"
#include "wait_name.h"

void
zkl_text_add(ZklText *t, const char *format,...)
{
	for (;;)
	{
		int			room = t->size - t->length;
		va_list		args;
		char	   *larger;
		int			n;

		if (t->failed)
			return;
		va_start(args, format);
		n = vsnprintf(t->text ? t->text + t->length : NULL, (size_t) room,
					  format, args);
		va_end(args);
		if (n >= 0 && n < room)
		{
			t->length += n;
			return;
		}
		larger = n >= 0 ? realloc(t->text, (size_t) t->length + (size_t) n + 256) : NULL;
		t->failed = larger == NULL;
		if (larger)
		{
			t->text = larger;
			t->size = t->length + n + 256;
		}
	}
}

bool
zkl_is_wait_of(const char *name, uint64_t session)
{
	char		prefix[24];
	int			n = snprintf(prefix, sizeof(prefix), "%" PRIx64 ".", session);

	return strncmp(name, prefix, (size_t) n) == 0;
}

/* Reads a hexadecimal number of at most 16 digits. */
static bool
read_hex(const char **p, uint64_t *value)
{
	int			digits = 0;

	*value = 0;
	for (;; (*p)++)
	{
		char		c = **p;
		int			v = c >= '0' && c <= '9' ? c - '0'
			: c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;

		if (v < 0)
			return digits > 0;
		if (++digits > 16)
			return false;
		*value = *value << 4 | (uint64_t) v;
	}
}

static bool
read_char(const char **p, char c)
{
	if (**p != c)
		return false;
	(*p)++;
	return true;
}

static bool
read_in_line(const char **p)
{
	return read_char(p, ZKL_WAIT_IN_LINE[0]);
}

/* One need of the node's own: ids joined by "+". */
static bool
read_need(const char **p, ZklWaitPicture *picture, const ZklWaitNode *node)
{
	ZklNeed    *need = &picture->needs[picture->n_needs];

	*need = (ZklNeed)
	{
		node->session, &picture->ids[picture->n_ids], 0, read_in_line(p), picture->n
	};
	do
	{
		if (!read_hex(p, &picture->ids[picture->n_ids]))
			return false;
		picture->n_ids++;
		need->n++;
	} while (read_char(p, '+'));
	picture->n_needs++;
	return true;
}

/* A session that waits for the node's. */
static bool
read_dependent(const char **p, ZklWaitPicture *picture, const ZklWaitNode *node)
{
	ZklNeed    *need = &picture->needs[picture->n_needs];

	*need = (ZklNeed)
	{
		0, &picture->ids[picture->n_ids], 1, read_in_line(p), picture->n
	};
	picture->ids[picture->n_ids++] = node->session;
	picture->n_needs++;
	return read_hex(p, &need->waiter);
}

static bool
read_list(const char **p, ZklWaitPicture *picture, const ZklWaitNode *node,
		  bool (*read_one) (const char **, ZklWaitPicture *, const ZklWaitNode *),
		  int *n)
{
	*n = 0;
	if (**p == '.')
		return true;
	do
	{
		if (!read_one(p, picture, node))
			return false;
		(*n)++;
	} while (read_char(p, ','));
	return true;
}

static bool
read_number(const char *p, int32_t *number)
{
	bool		negative = *p == '-';
	int64_t		value = 0;
	int			digits = 0;

	for (p += negative; *p >= '0' && *p <= '9' && digits < 11; p++, digits++)
		value = value * 10 + (*p - '0');
	if (negative)
		value = -value;
	*number = (int32_t) value;
	return *p == '\0' && digits > 0 && value >= INT32_MIN && value <= INT32_MAX;
}

static bool
read_name(const char *name, ZklWaitPicture *picture, ZklWaitNode *node)
{
	const char *p = name;
	uint64_t	version;

	node->name = name;
	if (!read_hex(&p, &node->session) || !read_char(&p, '.') ||
		!read_hex(&p, &node->wait) || !read_char(&p, '.') ||
		!read_hex(&p, &version) || !read_char(&p, '.'))
		return false;
	node->claims = *p == 'c';
	if (!node->claims && *p != 'w')
		return false;
	p++;
	node->first_need = picture->n_needs;
	return read_char(&p, '.') &&
		read_list(&p, picture, node, read_need, &node->n_needs) &&
		read_char(&p, '.') &&
		read_list(&p, picture, node, read_dependent, &node->n_dependents) &&
		read_char(&p, '.') && read_number(p, &node->number);
}

/* Is another node of its session newer?  A new one is made before the old goes. */
static bool
is_outdated(const ZklWaitPicture *picture, const ZklWaitNode *node)
{
	for (int i = 0; i < picture->n; i++)
		if (picture->nodes[i].session == node->session &&
			&picture->nodes[i] != node &&
			zkl_is_before(node->number, node->name, picture->nodes[i].number,
						  picture->nodes[i].name))
			return true;
	return false;
}

/* Each node's needs follow those of the one before it. */
static void
drop_outdated(ZklWaitPicture *picture)
{
	int			n = 0;
	int			n_needs = 0;

	for (int i = 0; i < picture->n; i++)
	{
		ZklWaitNode node = picture->nodes[i];
		int			count = node.n_needs + node.n_dependents;

		if (is_outdated(picture, &picture->nodes[i]))
			continue;
		memmove(&picture->needs[n_needs], &picture->needs[node.first_need],
				(size_t) count * sizeof(ZklNeed));
		node.first_need = n_needs;
		for (; n_needs < node.first_need + count; n_needs++)
			picture->needs[n_needs].source = n;
		picture->nodes[n++] = node;
	}
	picture->n = n;
	picture->n_needs = n_needs;
}

bool
zkl_picture_read(const char *const *children, int n_children,
				 ZklWaitPicture *picture)
{
	size_t		bytes = 1;

	memset(picture, 0, sizeof(*picture));
	for (int i = 0; i < n_children; i++)
		bytes += strlen(children[i]) / 2 + 2;
	picture->nodes = calloc((size_t) n_children + 1, sizeof(ZklWaitNode));
	picture->needs = calloc(bytes, sizeof(ZklNeed));
	picture->ids = calloc(bytes, sizeof(uint64_t));
	if (!picture->nodes || !picture->needs || !picture->ids)
	{
		zkl_picture_free(picture);
		return false;
	}
	for (int i = 0; i < n_children; i++)
	{
		int			n_needs = picture->n_needs;
		int			n_ids = picture->n_ids;

		if (read_name(children[i], picture, &picture->nodes[picture->n]))
			picture->n++;
		else
		{
			picture->n_needs = n_needs;
			picture->n_ids = n_ids;
		}
	}
	drop_outdated(picture);
	return true;
}

void
zkl_picture_free(ZklWaitPicture *picture)
{
	free(picture->nodes);
	free(picture->needs);
	free(picture->ids);
	memset(picture, 0, sizeof(*picture));
}

const ZklWaitNode *
zkl_picture_find(const ZklWaitPicture *picture, uint64_t session)
{
	for (int i = 0; i < picture->n; i++)
		if (picture->nodes[i].session == session)
			return &picture->nodes[i];
	return NULL;
}
