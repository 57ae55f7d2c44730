/*-------------------------------------------------------------------------
 *
 * wait_name.c
 *		Parses the names of the wait reports below <root>/waits.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe/queue/node.h"
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

/* No other form is read: a name in the form of another session's would be a name of it. */
bool
zkl_read_hex(const char **p, uint64_t *value)
{
	const char *start = *p;

	*value = 0;
	for (;; (*p)++)
	{
		char		c = **p;
		int			v = c >= '0' && c <= '9' ? c - '0'
			: c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;

		if (v < 0)
			return *p > start;
		if (*p - start == 16 || (*p - start == 1 && *start == '0'))
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
read_for_place(const char **p)
{
	return read_char(p, ZKL_WAIT_FOR_PLACE[0]);
}

/* Reads one node set of the node's own session: ids joined by "+". */
static bool
read_node_set(const char **p, ZklWaitReports *reports, const ZklWaitNode *node)
{
	ZklNodeSet *node_set = &reports->node_sets[reports->n_node_sets];

	*node_set = (ZklNodeSet)
	{
		node->session, &reports->ids[reports->n_ids], 0, read_for_place(p), reports->n
	};
	do
	{
		if (!zkl_read_hex(p, &reports->ids[reports->n_ids]))
			return false;
		reports->n_ids++;
		node_set->n++;
	} while (read_char(p, '+'));
	reports->n_node_sets++;
	return true;
}

/* Reads one local waiter: a session that waits for the node's session. */
static bool
read_local_waiter(const char **p, ZklWaitReports *reports, const ZklWaitNode *node)
{
	ZklNodeSet *node_set = &reports->node_sets[reports->n_node_sets];

	*node_set = (ZklNodeSet)
	{
		0, &reports->ids[reports->n_ids], 1, read_for_place(p), reports->n
	};
	reports->ids[reports->n_ids++] = node->session;
	reports->n_node_sets++;
	return zkl_read_hex(p, &node_set->waiter);
}

static bool
read_list(const char **p, ZklWaitReports *reports, const ZklWaitNode *node,
		  bool (*read_one) (const char **, ZklWaitReports *, const ZklWaitNode *),
		  int *n)
{
	*n = 0;
	if (**p == '.')
		return true;
	do
	{
		if (!read_one(p, reports, node))
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
read_name(const char *name, ZklWaitReports *reports, ZklWaitNode *node)
{
	const char *p = name;
	uint64_t	version;

	node->name = name;
	if (!zkl_read_hex(&p, &node->session) || !read_char(&p, '.') ||
		!zkl_read_hex(&p, &node->wait) || !read_char(&p, '.') ||
		!zkl_read_hex(&p, &version) || !read_char(&p, '.'))
		return false;
	node->is_victim_claim = *p == 'c';
	if (!node->is_victim_claim && *p != 'w')
		return false;
	p++;
	node->first_node_set = reports->n_node_sets;
	return read_char(&p, '.') &&
		read_list(&p, reports, node, read_node_set, &node->n_node_sets) &&
		read_char(&p, '.') &&
		read_list(&p, reports, node, read_local_waiter, &node->n_local_waiters) &&
		read_char(&p, '.') && read_number(p, &node->number);
}

/* Orders by session; nodes of one session stay in the order read. */
static int
compare_nodes(const void *a, const void *b)
{
	const ZklWaitNode *x = a;
	const ZklWaitNode *y = b;

	if (x->session != y->session)
		return x->session < y->session ? -1 : 1;
	return x->first_node_set < y->first_node_set ? -1 : x->first_node_set > y->first_node_set;
}

bool
zkl_wait_is_earlier(const ZklWaitNode *a, const ZklWaitNode *b)
{
	return zkl_is_before(a->number, a->name, b->number, b->name);
}

/*
 * Returns the newest node of a session.  It has older ones if a delete was refused, or if
 * another program has created nodes in its name.
 */
static const ZklWaitNode *
newest_of(const ZklWaitNode *nodes, int n)
{
	const ZklWaitNode *newest = nodes;

	for (int i = 1; i < n; i++)
		if (zkl_wait_is_earlier(newest, &nodes[i]))
			newest = &nodes[i];
	return newest;
}

/* Keeps the newest node of each session, and packs the node sets in that order. */
static bool
drop_outdated(ZklWaitReports *reports)
{
	ZklNodeSet *node_sets = calloc((size_t) reports->n_node_sets + 1, sizeof(ZklNodeSet));
	int			n = 0;
	int			n_node_sets = 0;

	if (node_sets == NULL)
		return false;
	qsort(reports->nodes, (size_t) reports->n, sizeof(ZklWaitNode), compare_nodes);
	for (int i = 0, end; i < reports->n; i = end)
	{
		ZklWaitNode node;
		int			count;

		for (end = i + 1; end < reports->n &&
			 reports->nodes[end].session == reports->nodes[i].session; end++)
			;
		node = *newest_of(&reports->nodes[i], end - i);
		count = node.n_node_sets + node.n_local_waiters;
		memcpy(&node_sets[n_node_sets], &reports->node_sets[node.first_node_set],
			   (size_t) count * sizeof(ZklNodeSet));
		node.first_node_set = n_node_sets;
		for (; n_node_sets < node.first_node_set + count; n_node_sets++)
			node_sets[n_node_sets].source = n;
		reports->nodes[n++] = node;
	}
	free(reports->node_sets);
	reports->node_sets = node_sets;
	reports->n = n;
	reports->n_node_sets = n_node_sets;
	return true;
}

bool
zkl_reports_read(const char *const *children, int n_children,
				 ZklWaitReports *reports)
{
	size_t		bytes = 1;

	memset(reports, 0, sizeof(*reports));
	for (int i = 0; i < n_children; i++)
		bytes += strlen(children[i]) / 2 + 2;
	reports->nodes = calloc((size_t) n_children + 1, sizeof(ZklWaitNode));
	reports->node_sets = calloc(bytes, sizeof(ZklNodeSet));
	reports->ids = calloc(bytes, sizeof(uint64_t));
	if (!reports->nodes || !reports->node_sets || !reports->ids)
	{
		zkl_reports_free(reports);
		return false;
	}
	for (int i = 0; i < n_children; i++)
	{
		int			n_node_sets = reports->n_node_sets;
		int			n_ids = reports->n_ids;

		if (read_name(children[i], reports, &reports->nodes[reports->n]))
			reports->n++;
		else
		{
			reports->n_node_sets = n_node_sets;
			reports->n_ids = n_ids;
		}
	}
	if (!drop_outdated(reports))
	{
		zkl_reports_free(reports);
		return false;
	}
	return true;
}

void
zkl_reports_free(ZklWaitReports *reports)
{
	free(reports->nodes);
	free(reports->node_sets);
	free(reports->ids);
	memset(reports, 0, sizeof(*reports));
}

static int
compare_session(const void *key, const void *node)
{
	uint64_t	session = *(const uint64_t *) key;
	uint64_t	other = ((const ZklWaitNode *) node)->session;

	return session < other ? -1 : session > other;
}

const ZklWaitNode *
zkl_reports_find(const ZklWaitReports *reports, uint64_t session)
{
	return bsearch(&session, reports->nodes, (size_t) reports->n,
				   sizeof(ZklWaitNode), compare_session);
}

ZklNames *
zkl_names_copy(const char *const *names, int n, int max_names, size_t max_bytes,
			   bool *too_many)
{
	ZklNames   *copy;
	size_t		bytes = 0;
	char	   *end;

	*too_many = n > max_names;
	for (int i = 0; i < n && !*too_many; i++)
	{
		bytes += strlen(names[i]) + 1;
		*too_many = bytes > max_bytes;
	}
	copy = *too_many ? NULL
		: malloc(sizeof(ZklNames) + (size_t) n * sizeof(char *) + bytes);
	if (copy == NULL)
		return NULL;
	copy->n = n;
	end = (char *) &copy->names[n];
	for (int i = 0; i < n; i++)
	{
		size_t		size = strlen(names[i]) + 1;

		copy->names[i] = memcpy(end, names[i], size);
		end += size;
	}
	return copy;
}
