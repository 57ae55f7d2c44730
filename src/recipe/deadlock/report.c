/*-------------------------------------------------------------------------
 *
 * report.c
 *		Writes and reads wait reports, and the names of their nodes.
 *
 * Data of a report, one line each, a tab between the fields:
 *
 *		1 <instance> <pid> <version of the bell> <identity> <server>
 *		l <name> <child>									waits in the queue of a lock
 *		m <name> <child>									... of a semaphore's mutex
 *		p <name> <child> <capacity>							waits for a permit
 *		w <session> <pid> <identity> <0 or 1> <holds> <text>	a local waiter
 *
 * Holds are separated by commas: a letter for the kind, and the key.  Process ids, versions
 * and capacities are decimal, all other numbers hexadecimal.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"


/*
 * Writing
 */

/* Control characters, which could end a line or field, become ? */
static void
put_printable(FILE *f, const char *text)
{
	putc('\t', f);
	for (; *text; text++)
		putc((unsigned char) *text < ' ' ? '?' : *text, f);
}

static void
put_node(FILE *f, const ZklReportNode *node)
{
	fprintf(f, "\n%c\t%s\t%s", node->place, node->name, node->child);
	if (node->place == ZKL_PLACE_PERMITS)
		fprintf(f, "\t%d", node->capacity);
}

static void
put_waiter(FILE *f, const ZklReportWaiter *waiter)
{
	fprintf(f, "\nw\t%" PRIx64 "\t%d\t%" PRIx64 "\t%d\t", waiter->session, waiter->pid,
			waiter->identity, waiter->only_for_place);
	for (int i = 0; i < waiter->n_held; i++)
		fprintf(f, "%s%c%" PRIx32, i ? "," : "", waiter->held[i].kind, waiter->held[i].key);
	put_printable(f, waiter->waits_for);
}

char *
zkl_report_encode(const ZklReport *report, int *length)
{
	char	   *data = NULL;
	size_t		size = 0;
	FILE	   *f = open_memstream(&data, &size);
	bool		failed;

	if (f == NULL)
		return NULL;
	fprintf(f, "1\t%" PRIx64 "\t%d\t%" PRId32 "\t%" PRIx64, report->instance, report->pid,
			report->bell, report->identity);
	put_printable(f, report->server);
	for (int i = 0; i < report->n_nodes; i++)
		put_node(f, &report->nodes[i]);
	for (int i = 0; i < report->n_waiters; i++)
		put_waiter(f, &report->waiters[i]);
	failed = ferror(f) != 0;
	if (fclose(f) != 0 || failed || size > ZKL_REPORT_MAX)
	{
		free(data);
		return NULL;
	}
	*length = (int) size;
	return data;
}


/*
 * Reading
 */

#define MAX_FIELDS 7

/* A report that is read, and where its next hold goes. */
typedef struct Reading
{
	ZklReport  *report;
	ZklReportNode *nodes;
	ZklReportWaiter *waiters;
	ZklHeld    *held;
} Reading;

/* Cuts a text at the separators; the last field has the rest.  Returns their number. */
static int
split(char *text, char separator, char **fields, int max)
{
	int			n = 0;

	fields[n++] = text;
	while (n < max && (text = strchr(text, separator)) != NULL)
	{
		*text++ = '\0';
		fields[n++] = text;
	}
	return n;
}

/* A number that is none is some other number: that is a false report, and no danger. */
static uint64_t
read_hex(const char *text)
{
	return strtoull(text, NULL, 16);
}

static bool
is_component(const char *text)
{
	return *text != '\0' && strchr(text, '/') == NULL;
}

static bool
read_node(Reading *r, char **fields, int n)
{
	ZklReportNode *node = &r->nodes[r->report->n_nodes++];

	if (n != (*fields[0] == ZKL_PLACE_PERMITS ? 4 : 3) || memchr("lmp", *fields[0], 3) == NULL ||
		!is_component(fields[1]) || !is_component(fields[2]))
		return false;
	node->place = (ZklWaitPlace) *fields[0];
	node->name = fields[1];
	node->child = fields[2];
	node->capacity = n == 4 ? atoi(fields[3]) : 0;
	return true;
}

static bool
read_waiter(Reading *r, char **fields, int n)
{
	ZklReportWaiter *waiter = &r->waiters[r->report->n_waiters++];
	char	   *rest[2];

	if (n != MAX_FIELDS)
		return false;
	waiter->session = read_hex(fields[1]);
	waiter->pid = atoi(fields[2]);
	waiter->identity = read_hex(fields[3]);
	waiter->only_for_place = *fields[4] != '0';
	waiter->waits_for = fields[6];
	waiter->held = r->held;
	rest[1] = fields[5];
	for (n = *fields[5] == '\0' ? 1 : 2; n == 2; waiter->n_held++)
	{
		n = split(rest[1], ',', rest, 2);
		r->held->kind = (ZklHeldKind) *rest[0];
		r->held->key = *rest[0] == '\0' ? 0 : (uint32_t) read_hex(rest[0] + 1);
		r->held++;
	}
	return true;
}

static bool
read_report(Reading *r, char *text)
{
	char	   *rest[2];
	char	   *fields[MAX_FIELDS];
	int			lines = split(text, '\n', rest, 2);

	if (split(rest[0], '\t', fields, 6) != 6 || strcmp(fields[0], "1") != 0)
		return false;
	r->report->instance = read_hex(fields[1]);
	r->report->pid = atoi(fields[2]);
	r->report->bell = atoi(fields[3]);
	r->report->identity = read_hex(fields[4]);
	r->report->server = fields[5];
	while (lines == 2)
	{
		int			n;

		lines = split(rest[1], '\n', rest, 2);
		n = split(rest[0], '\t', fields, MAX_FIELDS);
		if (!(*fields[0] == 'w' ? read_waiter(r, fields, n) : read_node(r, fields, n)))
			return false;
	}
	return true;
}

ZklReport *
zkl_report_decode(const char *data, int length)
{
	size_t		lines = 1;
	size_t		held = 1;
	Reading		r;
	char	   *text;

	if (length <= 0 || length > ZKL_REPORT_MAX || memchr(data, '\0', (size_t) length))
		return NULL;
	for (int i = 0; i < length; i++)
	{
		lines += data[i] == '\n';
		held += data[i] == '\n' || data[i] == ',';
	}
	r.report = calloc(1, sizeof(ZklReport) + (size_t) length + 1 + held * sizeof(ZklHeld) +
					  lines * (sizeof(ZklReportNode) + sizeof(ZklReportWaiter)));
	if (r.report == NULL)
		return NULL;
	r.report->nodes = r.nodes = (ZklReportNode *) (r.report + 1);
	r.report->waiters = r.waiters = (ZklReportWaiter *) (r.nodes + lines);
	r.held = (ZklHeld *) (r.waiters + lines);
	text = memcpy(r.held + held, data, (size_t) length);
	if (read_report(&r, text))
		return r.report;
	free(r.report);
	return NULL;
}

bool
zkl_report_is_unchanged(const ZklReport *before, const ZklReport *later,
						const ZklReportWaiter *waiter)
{
	int			i = 0;

	if (before->identity != later->identity)
		return false;
	while (waiter && i < later->n_waiters && later->waiters[i].session != waiter->session)
		i++;
	return waiter == NULL ||
		(i < later->n_waiters && later->waiters[i].identity == waiter->identity);
}


/*
 * Names and paths
 */

char *
zkl_place_path(const char *root, ZklWaitPlace place, const char *name, const char *child)
{
	char	   *path;

	if (asprintf(&path, "%s/%s/%s%s%s%s", root,
				 place == ZKL_PLACE_LOCK ? "locks" : "semaphores", name,
				 place == ZKL_PLACE_LOCK ? "" : place == ZKL_PLACE_MUTEX ? "/locks" : "/leases",
				 child ? "/" : "", child ? child : "") < 0)
		return NULL;
	return path;
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
	char		copy[ZKL_WAITING_NAME_SIZE];
	char	   *fields[2];
	int			n;

	if (strlen(name) >= sizeof(copy))
		return false;
	n = split(strcpy(copy, name), '@', fields, 2);
	*session = read_hex(fields[n - 1]);
	*local = n == 2 ? read_hex(fields[0]) : 0;
	return *session != 0 && (n == 1 || *local != 0);
}
