/*-------------------------------------------------------------------------
 *
 * report.c
 *		Writes and reads wait reports, and the names of their nodes.
 *
 * Each line of a report has a letter, four numbers and a text:
 *
 *		2 0 <identity> <pid> <version of the bell> <server>
 *		l 0 0 0 0 <name>/<child>					waits in the queue of a lock
 *		m 0 0 0 0 <name>/<child>					... of a semaphore's mutex
 *		p 0 0 0 <capacity> <name>/<child>			waits for a permit
 *		w <session> <identity> <pid> <0 or 1> <text>	a local waiter
 *		h <key> 0 0 <kind>							... holds this
 *
 * 2 is the version of the format.  The first two numbers are hexadecimal.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report.h"

/* Shortest line, without its end: "h0+0+0+0 ". */
#define MIN_LINE 9


/*
 * Writing
 */

/* Control characters, which could end the line, become ?.  *n may exceed ZKL_REPORT_MAX. */
static void
put_line(char *data, int *n, char kind, uint64_t a, uint64_t b, int c, int d, const char *text)
{
	int			start = *n;

	if (start > ZKL_REPORT_MAX)
		return;
	*n += snprintf(data + start, (size_t) (ZKL_REPORT_MAX + 1 - start),
				   "%c %" PRIx64 " %" PRIx64 " %d %d %s ", kind, a, b, c, d, text);
	if (*n > ZKL_REPORT_MAX)
		return;
	for (int i = start; i < *n - 1; i++)
		if ((unsigned char) data[i] < ' ')
			data[i] = '?';
	data[*n - 1] = '\n';
}

char *
zkl_report_encode(ZklScratch *scratch, const ZklReport *report, int *length)
{
	char	   *data = zkl__scratch(scratch, ZKL_REPORT_MAX + 1, 1);
	int			n = 0;

	put_line(data, &n, '2', 0, report->identity, report->pid, report->bell,
			 report->server);
	for (int i = 0; i < report->n_nodes; i++)
	{
		const ZklWaitNode *node = &report->nodes[i];

		put_line(data, &n, (char) node->place, 0, 0, 0, node->capacity,
				 zkl__scratch_text(scratch, "%s/%s", node->name, node->child));
	}
	for (int i = 0; i < report->n_waiters; i++)
	{
		const ZklLocalWaiter *w = &report->waiters[i];

		put_line(data, &n, 'w', (uint64_t) w->session_id, w->identity, w->pid, w->only_for_place, w->waits_for);
		for (int k = 0; k < w->n_held; k++)
			put_line(data, &n, 'h', w->held[k].key, 0, 0, (int) w->held[k].kind, "");
	}
	if (n > ZKL_REPORT_MAX)
		zkl__scratch_leave(scratch, ZKL_LEFT_TOO_MUCH);
	*length = n;
	return data;
}


/*
 * Reading
 */

/* A report that is read, and where the next node, local waiter and hold go. */
typedef struct Reading
{
	ZklReport  *report;
	ZklWaitNode *node;
	ZklLocalWaiter *waiter;
	ZklHeld    *held;
} Reading;

/* Reads a node; "text" is <name>/<child>. */
static bool
read_node(Reading *r, char place, int capacity, char *text)
{
	char	   *child = strchr(text, '/');

	if (child == NULL || child == text || child[1] == '\0' || strchr(child + 1, '/'))
		return false;
	*child++ = '\0';
	*r->node++ = (ZklWaitNode)
	{
		(ZklWaitPlace) place, text, child, capacity
	};
	r->report->n_nodes++;
	return true;
}

static bool
read_line(Reading *r, char *line)
{
	ZklReport  *report = r->report;
	uint64_t	a;
	uint64_t	b;
	char		kind;
	int			c;
	int			d;
	int			start = 0;

	if (sscanf(line, "%c %" SCNx64 " %" SCNx64 " %d %d%n", &kind, &a, &b, &c, &d, &start) != 5 ||
		line[start] != ' ' || (report->server == NULL) != (kind == '2'))
		return false;
	line += start + 1;
	switch (kind)
	{
		case '2':
			report->identity = b;
			report->pid = c;
			report->bell = d;
			report->server = line;
			return true;
		case ZKL_PLACE_LOCK:
		case ZKL_PLACE_MUTEX:
		case ZKL_PLACE_PERMITS:
			return read_node(r, kind, d, line);
		case 'w':
			*r->waiter++ = (ZklLocalWaiter)
			{
				(int64_t) a, c, b, line, d != 0, r->held, 0
			};
			report->n_waiters++;
			return true;
		case 'h':
			*r->held++ = (ZklHeld)
			{
				(uint32_t) a, (ZklHeldKind) d
			};
			if (report->n_waiters > 0)
				r->waiter[-1].n_held++;
			return true;
		default:
			return false;
	}
}

ZklReport *
zkl_report_decode(ZklScratch *scratch, const char *data, int length)
{
	Reading		r;
	size_t		lines = (size_t) length / MIN_LINE;
	char	   *text;

	if (length <= 0 || length > ZKL_REPORT_MAX || memchr(data, '\0', (size_t) length))
		return NULL;
	r.report = zkl__scratch(scratch, 1, sizeof(ZklReport));
	r.report->nodes = r.node = zkl__scratch(scratch, lines, sizeof(ZklWaitNode));
	r.report->waiters = r.waiter = zkl__scratch(scratch, lines, sizeof(ZklLocalWaiter));
	r.held = zkl__scratch(scratch, lines, sizeof(ZklHeld));
	text = memcpy(zkl__scratch(scratch, (size_t) length + 1, 1), data, (size_t) length);
	for (char *line = strtok_r(text, "\n", &text); line; line = strtok_r(NULL, "\n", &text))
		if (!read_line(&r, line))
			return NULL;
	return r.report->server ? r.report : NULL;
}

bool
zkl_report_is_unchanged(const ZklReport *before, const ZklReport *later,
						const ZklLocalWaiter *waiter)
{
	int			i = 0;

	if (before->identity != later->identity)
		return false;
	while (waiter && i < later->n_waiters && later->waiters[i].session_id != waiter->session_id)
		i++;
	return waiter == NULL ||
		(i < later->n_waiters && later->waiters[i].identity == waiter->identity);
}


/*
 * Paths of queues; names of the znodes of reports
 */

char *
zkl_place_path(ZklScratch *scratch, const char *root, ZklWaitPlace place, const char *name)
{
	if (place == ZKL_PLACE_LOCK)
		return zkl__scratch_text(scratch, "%s/locks/%s", root, name);
	return zkl__scratch_text(scratch, "%s/semaphores/%s/%s", root, name,
							 place == ZKL_PLACE_MUTEX ? "locks" : "leases");
}

void
zkl_waiting_name(uint64_t session, uint64_t local, char out[ZKL_WAITING_NAME_SIZE])
{
	if (local == 0)
		snprintf(out, ZKL_WAITING_NAME_SIZE, "%" PRIx64, session);
	else
		snprintf(out, ZKL_WAITING_NAME_SIZE, "%" PRIx64 "@%" PRIx64, local, session);
}

bool
zkl_parse_waiting(const char *name, uint64_t *session, uint64_t *local)
{
	char		again[ZKL_WAITING_NAME_SIZE];

	*session = *local = 0;
	if (sscanf(name, "%" SCNx64 "@%" SCNx64, local, session) == 1)
	{
		*session = *local;
		*local = 0;
	}
	zkl_waiting_name(*session, *local, again);
	return *session != 0 && strcmp(name, again) == 0;
}
