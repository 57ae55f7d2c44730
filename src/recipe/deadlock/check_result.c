/*-------------------------------------------------------------------------
 *
 * check_result.c
 *		The result of a cycle check: parses the reports' data, searches the reports
 *		without the waits that end by themselves, and describes the cycle.
 *
 * Works on the check alone: no I/O, no mutex.  Called by the owner's thread
 * (deadlock_search.c).
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "cycle_check.h"

/*
 * Parsing the data
 */

/* Cuts off and returns the text before the separator, or the rest; NULL at the end. */
static char *
cut(char **text, char separator)
{
	char	   *start = *text;
	char	   *end = start ? strchr(start, separator) : NULL;

	if (end)
		*end = '\0';
	*text = end ? end + 1 : NULL;
	return start;
}

static bool
cut_hex(char **line, uint64_t *value)
{
	const char *text = cut(line, '\t');

	return text && zkl_read_hex(&text, value) && *text == '\0';
}

static bool
cut_pid(char **line, int *pid)
{
	const char *text = cut(line, '\t');

	*pid = text ? atoi(text) : 0;
	return text != NULL;
}

/* Reads a wait in the ensemble; *n is the number of its node sets in the report's name. */
static bool
read_wait(ZklCheckWait *wait, char *line, uint64_t *n)
{
	uint64_t	key;

	if (!cut_hex(&line, n) || !cut_hex(&line, &key))
		return false;
	wait->session = wait->participant->node->session;
	wait->pid = wait->participant->pid;
	wait->key = (uint32_t) key;
	wait->waits_for = cut(&line, '\t');
	return wait->waits_for != NULL;
}

static bool
read_local_waiter(ZklCycleCheck *check, ZklCheckWait *wait, char *line)
{
	if (!cut_hex(&line, &wait->session) || !cut_pid(&line, &wait->pid))
		return false;
	wait->waits_for = cut(&line, '\t');
	return wait->waits_for && zkl_check_read_held(check, wait->session, cut(&line, '\t'));
}

/* Reads a line, and links it with its node sets, which begin at *next. */
static bool
read_line(ZklCycleCheck *check, const ZklParticipant *participant, char *line, int *next)
{
	const ZklWaitNode *node = participant->node;
	int			end = node->first_node_set + node->n_node_sets + node->n_local_waiters;
	const char *kind = cut(&line, '\t');
	ZklCheckWait *wait;
	uint64_t	n = 1;

	if (strlen(kind) != 1 || strchr("xspd", kind[0]) == NULL)
		return true;			/* a line of a later version */
	wait = &check->waits[check->n_waits];
	*wait = (ZklCheckWait)
	{
		.participant = participant, .kind = kind[0]
	};
	if (kind[0] == ZKL_WAIT_LOCAL ? !read_local_waiter(check, wait, line)
		: !read_wait(wait, line, &n))
		return false;
	if (n > (uint64_t) (end - *next))
		return false;
	for (; n > 0; n--)
		check->reports.node_sets[(*next)++].source = check->n_waits;
	check->n_waits++;
	return true;
}

/* Makes room for a wait in each line; returns false if memory is exhausted. */
static bool
allocate_waits(ZklCycleCheck *check)
{
	size_t		n = 1;

	for (int i = 0; i < check->n_participants; i++)
		for (const char *c = check->participants[i].data; *c; c++)
			n += *c == '\n';
	check->waits = malloc(n * sizeof(ZklCheckWait));
	return check->waits != NULL;
}

/* Reads a participant's data; each of its node sets must belong to a line. */
static bool
read_data(ZklCycleCheck *check, ZklParticipant *participant)
{
	const ZklWaitNode *node = participant->node;
	int			next = node->first_node_set;
	char	   *rest = participant->data;
	char	   *line = cut(&rest, '\n');

	if (!cut_hex(&line, &participant->instance) || !cut_pid(&line, &participant->pid))
		return false;
	participant->server = cut(&line, '\t');
	while ((line = cut(&rest, '\n')) != NULL)
		if (!read_line(check, participant, line, &next))
			return false;
	return participant->server &&
		next == node->first_node_set + node->n_node_sets + node->n_local_waiters;
}


/*
 * Describing the cycle
 */

/* Copies the text into the memory behind the edges. */
static char *
keep_text(char **end, const char *text)
{
	char	   *copy = *end;

	strcpy(copy, text);
	*end += strlen(text) + 1;
	return copy;
}

static const ZklCheckWait *
wait_of(const ZklCycleCheck *check, int node_set)
{
	return &check->waits[check->reports.node_sets[node_set].source];
}

/* Returns the deadlock in one allocation, or NULL if memory is exhausted. */
static ZklDeadlock *
describe(const ZklCycleCheck *check, const int *path, int n)
{
	ZklDeadlock *deadlock;
	size_t		size = sizeof(ZklDeadlock) + (size_t) n * sizeof(ZklDeadlockEdge);
	char	   *end;

	for (int i = 0; i < n; i++)
		size += strlen(wait_of(check, path[i])->participant->server) +
			strlen(wait_of(check, path[i])->waits_for) + 2;
	deadlock = malloc(size);
	if (deadlock == NULL)
		return NULL;
	deadlock->keeps_place = check->keeps_place;
	deadlock->n = n;
	end = (char *) &deadlock->edges[n];
	for (int i = 0; i < n; i++)
	{
		const ZklCheckWait *wait = wait_of(check, path[i]);

		deadlock->edges[i] = (ZklDeadlockEdge)
		{
			.instance = wait->participant->instance,
				.session_id = (int64_t) wait->session,
				.pid = wait->pid,
				.server = keep_text(&end, wait->participant->server),
				.waits_for = keep_text(&end, wait->waits_for)
		};
	}
	return deadlock;
}

ZklDeadlock *
zkl_check_result(ZklCycleCheck *check, uint64_t me, ZklCircle circle)
{
	const ZklWaitReports *reports = &check->reports;
	ZklDeadlock *deadlock = NULL;
	int		   *path;
	int			length;

	check->failed = !allocate_waits(check);
	for (int i = 0; i < check->n_participants && !check->failed; i++)
		check->failed = !read_data(check, &check->participants[i]);
	if (check->failed)
		return NULL;
	zkl_check_drop_released(check);
	length = zkl_find_cycle(reports->node_sets, reports->n_node_sets, me, circle, &path);
	if (length > 0)
		deadlock = describe(check, path, length);
	free(path);
	return deadlock;
}
