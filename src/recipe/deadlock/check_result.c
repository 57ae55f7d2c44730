/*-------------------------------------------------------------------------
 *
 * check_result.c
 *		The result of a cycle check: parses the reports' data, finds the blockers
 *		in the queues, and searches the graph of these for the deadlock.
 *
 * Works on the check alone: no I/O, no mutex.  Called by the owner's thread
 * (deadlock_search.c).
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
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

static int
read_count(char **line)
{
	const char *text = cut(line, '\t');

	return text ? atoi(text) : 0;
}

static bool
read_queue_entry(ZklQueueEntry *queue_entry, int participant, char *line)
{
	char	   *kind = cut(&line, '\t');

	queue_entry->participant = participant;
	queue_entry->upgrade = kind[0] == 'u';
	queue_entry->any = kind[0] == 'p';
	queue_entry->path = cut(&line, '\t');
	if (queue_entry->any)
	{
		queue_entry->limit = read_count(&line);
		queue_entry->n_own = read_count(&line);
	}
	else
		queue_entry->child = cut(&line, '\t');
	queue_entry->item = cut(&line, '\t');
	queue_entry->lock = cut(&line, '\t');
	return queue_entry->lock && queue_entry->path[0] != '\0' && queue_entry->path[0] != '/' &&
		strstr(queue_entry->path, "//") == NULL;
}

static bool
read_participant(ZklParticipant *participant, char *line)
{
	char	   *instance = cut(&line, '\t');
	char	   *pid = cut(&line, '\t');

	participant->server = cut(&line, '\t');
	if (participant->server == NULL)
		return false;
	participant->instance = strtoull(instance, NULL, 16);
	participant->pid = atoi(pid);
	return true;
}

bool
zkl_check_grow(void **array, int n, size_t size)
{
	void	   *larger;

	if ((n & (n - 1)) != 0)
		return true;			/* grows at powers of two */
	larger = realloc(*array, (n ? (size_t) n * 2 : 1) * size);
	if (larger)
		*array = larger;
	return larger != NULL;
}

static int
compare_session(const void *key, const void *participant)
{
	uint64_t	session = *(const uint64_t *) key;
	uint64_t	other = ((const ZklParticipant *) participant)->session;

	return session < other ? -1 : session > other;
}

static bool
is_participant(const ZklCycleCheck *check, uint64_t session)
{
	return bsearch(&session, check->participants, (size_t) check->n_participants,
				   sizeof(ZklParticipant), compare_session) != NULL;
}

/*
 * Reads a local waiter.  A session that has just reported a wait of its own waits in the
 * ensemble, so it is no local waiter, whatever another session reports.
 */
static bool
read_waiter(ZklCycleCheck *check, int participant, char *line)
{
	ZklReportedWaiter waiter = {.participant = participant};
	char	   *session;
	char	   *pid;

	cut(&line, '\t');
	session = cut(&line, '\t');
	pid = cut(&line, '\t');
	waiter.waits_for = cut(&line, '\t');
	if (waiter.waits_for == NULL)
		return false;
	waiter.session = strtoull(session, NULL, 16);
	waiter.pid = atoi(pid);
	if (is_participant(check, waiter.session))
		return true;
	if (!zkl_check_grow((void **) &check->waiters, check->n_waiters, sizeof(ZklReportedWaiter)))
		return false;
	check->waiters[check->n_waiters++] = waiter;
	return zkl_check_read_held(check, waiter.session, cut(&line, '\t'));
}

static bool
read_line(ZklCycleCheck *check, int participant, char *line)
{
	if (line[0] != '\0' && strchr("wup", line[0]) && line[1] == '\t')
	{
		if (check->n_queue_entries == ZKL_CHECK_MAX_ENTRIES ||
			!zkl_check_grow((void **) &check->queue_entries, check->n_queue_entries, sizeof(ZklQueueEntry)))
			return false;
		memset(&check->queue_entries[check->n_queue_entries], 0, sizeof(ZklQueueEntry));
		return read_queue_entry(&check->queue_entries[check->n_queue_entries++], participant, line);
	}
	if (line[0] == 'd' && line[1] == '\t')
		return read_waiter(check, participant, line);
	return true;				/* a line of a later version */
}

static bool
read_data(ZklCycleCheck *check, int i)
{
	ZklParticipant *participant = &check->participants[i];
	char	   *rest = participant->data;
	char	   *line;

	if (!read_participant(participant, cut(&rest, '\n')))
		return false;
	while ((line = cut(&rest, '\n')) != NULL)
		if (!read_line(check, i, line))
			return false;
	return true;
}

static int
compare_queue_entries(const void *a, const void *b)
{
	return strcmp(((const ZklQueueEntry *) a)->path, ((const ZklQueueEntry *) b)->path);
}

bool
zkl_check_parse(ZklCycleCheck *check)
{
	for (int i = 0; i < check->n_participants; i++)
		if (!read_data(check, i))
			return false;
	zkl_check_sort_held(check);
	check->understood = true;
	check->lists = calloc((size_t) check->n_queue_entries + 1, sizeof(ZklCheckList));
	if (check->lists == NULL)
		return false;
	if (check->n_queue_entries > 1)
		qsort(check->queue_entries, (size_t) check->n_queue_entries, sizeof(ZklQueueEntry), compare_queue_entries);
	for (int i = 0, end; i < check->n_queue_entries; i = end)
	{
		for (end = i + 1; end < check->n_queue_entries &&
			 compare_queue_entries(&check->queue_entries[i], &check->queue_entries[end]) == 0; end++)
			;
		check->lists[check->n_lists++] = (ZklCheckList)
		{
			i, end - i, NULL, NULL
		};
	}
	return true;
}


/*
 * Blockers in the queues
 */

/* Finds the sessions before the entry in its queue, each of which must leave. */
static void
find_blockers(ZklQueueEntry *queue_entry, const ZklQueued *queue, int n_queue,
			  ZklBlocker *blockers)
{
	int			n = zkl_blockers(queue, n_queue, queue_entry->child, queue_entry->upgrade,
								 blockers);

	queue_entry->blockers = calloc((size_t) (n > 0 ? n : 1), sizeof(uint64_t));
	for (int i = 0; queue_entry->blockers && i < n; i++)
		queue_entry->blockers[queue_entry->n_blockers++] = blockers[i].owner;
}

/* Finds the owners of the permits, one of whom must release a permit. */
static void
find_owners(ZklQueueEntry *queue_entry, uint64_t session, const ZklNames *names)
{
	int			n_own;
	int			n;

	if (names->n <= queue_entry->limit)
		return;
	queue_entry->blockers = calloc((size_t) names->n + 1, sizeof(uint64_t));
	if (queue_entry->blockers == NULL)
		return;
	n = zkl_permit_owners(names->names, names->n, session, queue_entry->blockers, &n_own);
	if (n > 0 && n_own == queue_entry->n_own)	/* else it got a permit or releases one */
		queue_entry->n_blockers = n;
}

static void
read_list(ZklCycleCheck *check, const ZklCheckList *list, ZklKeyOf key_of)
{
	int			n_queue;
	ZklQueued  *queue = zkl_read_queue(list->names->names, list->names->n, &n_queue);
	ZklBlocker *blockers = calloc((size_t) list->names->n + 1, sizeof(ZklBlocker));

	for (int i = list->first; queue && blockers && i < list->first + list->n; i++)
	{
		ZklQueueEntry *queue_entry = &check->queue_entries[i];

		if (queue_entry->any)
			find_owners(queue_entry, check->participants[queue_entry->participant].session, list->names);
		else
			find_blockers(queue_entry, queue, n_queue, blockers);
		zkl_check_drop_released(check, queue_entry, key_of);
	}
	free(blockers);
	free(queue);
}

/* Many queue entries in one long queue would take too much time and memory. */
static bool
is_within_bounds(const ZklCycleCheck *check)
{
	int64_t		reads = 0;

	for (int i = 0; i < check->n_lists; i++)
		reads += (int64_t) check->lists[i].n * check->lists[i].names->n;
	return reads <= ZKL_CHECK_MAX_READS;
}

static int
collect_node_sets(const ZklCycleCheck *check, ZklNodeSet *node_sets)
{
	int			n = 0;

	for (int i = 0; i < check->n_queue_entries; i++)
	{
		const ZklQueueEntry *queue_entry = &check->queue_entries[i];
		int			step = queue_entry->any ? queue_entry->n_blockers : 1;

		for (int j = 0; j < queue_entry->n_blockers; j += step)
			node_sets[n++] = (ZklNodeSet)
		{
			check->participants[queue_entry->participant].session, &queue_entry->blockers[j], step,
				false, i
		};
	}
	for (int i = 0; i < check->n_waiters; i++)
	{
		const ZklReportedWaiter *waiter = &check->waiters[i];

		node_sets[n++] = (ZklNodeSet)
		{
			waiter->session, &check->participants[waiter->participant].session, 1,
				false, check->n_queue_entries + i
		};
	}
	return n;
}


/*
 * Describing the cycle
 */

/* Returns text like: exclusive lock "a". */
static char *
queue_entry_text(const ZklQueueEntry *queue_entry)
{
	ZklText		t = {NULL, 0, 0, false};

	zkl_text_add(&t, "%s \"%s\"", queue_entry->item, queue_entry->lock);
	if (t.failed)
	{
		free(t.text);
		return NULL;
	}
	return t.text;
}

/* Copies the text into the memory behind the edges. */
static char *
keep_text(char **end, const char *text)
{
	char	   *copy = *end;

	strcpy(copy, text);
	*end += strlen(text) + 1;
	return copy;
}

/* What one member of the cycle waits for. */
typedef struct Line
{
	const ZklParticipant *participant;
	uint64_t	session;
	int			pid;
	const char *waits_for;
	char	   *made;			/* to be freed */
} Line;

static Line
line_of(const ZklCycleCheck *check, int source)
{
	Line		line = {0};

	if (source < check->n_queue_entries)
	{
		line.participant = &check->participants[check->queue_entries[source].participant];
		line.session = line.participant->session;
		line.pid = line.participant->pid;
		line.made = queue_entry_text(&check->queue_entries[source]);
		line.waits_for = line.made ? line.made : "";
	}
	else
	{
		const ZklReportedWaiter *waiter = &check->waiters[source - check->n_queue_entries];

		line.participant = &check->participants[waiter->participant];
		line.session = waiter->session;
		line.pid = waiter->pid;
		line.waits_for = waiter->waits_for;
	}
	return line;
}

/* Returns the deadlock in one allocation, or NULL if memory is exhausted. */
static ZklDeadlock *
join_lines(const Line *lines, int n)
{
	ZklDeadlock *deadlock;
	size_t		size = sizeof(ZklDeadlock) + (size_t) n * sizeof(ZklDeadlockEdge);
	char	   *end;

	for (int i = 0; i < n; i++)
		size += strlen(lines[i].participant->server) + strlen(lines[i].waits_for) + 2;
	deadlock = malloc(size);
	if (deadlock == NULL)
		return NULL;
	deadlock->keeps_place = false;
	deadlock->n = n;
	end = (char *) &deadlock->edges[n];
	for (int i = 0; i < n; i++)
	{
		ZklDeadlockEdge *edge = &deadlock->edges[i];

		edge->instance = lines[i].participant->instance;
		edge->session_id = (int64_t) lines[i].session;
		edge->pid = lines[i].pid;
		edge->server = keep_text(&end, lines[i].participant->server);
		edge->waits_for = keep_text(&end, lines[i].waits_for);
	}
	return deadlock;
}

static ZklDeadlock *
describe(const ZklCycleCheck *check, const ZklNodeSet *node_sets, const int *path, int n)
{
	Line	   *lines = calloc((size_t) n, sizeof(Line));
	ZklDeadlock *deadlock = NULL;

	for (int i = 0; lines && i < n; i++)
		lines[i] = line_of(check, node_sets[path[i]].source);
	if (lines)
		deadlock = join_lines(lines, n);
	for (int i = 0; lines && i < n; i++)
		free(lines[i].made);
	free(lines);
	return deadlock;
}

ZklDeadlock *
zkl_check_result(ZklCycleCheck *check, uint64_t me, ZklCircle circle, ZklKeyOf key_of)
{
	ZklDeadlock *deadlock = NULL;
	ZklNodeSet *node_sets;
	uint64_t   *members = NULL;
	int		   *path = NULL;
	size_t		size = (size_t) check->n_waiters + 1;
	int			n;

	if (!is_within_bounds(check))
		return NULL;
	for (int i = 0; i < check->n_lists; i++)
		read_list(check, &check->lists[i], key_of);
	for (int i = 0; i < check->n_queue_entries; i++)
		size += (size_t) check->queue_entries[i].n_blockers;
	node_sets = calloc(size, sizeof(ZklNodeSet));
	if (node_sets == NULL)
		return NULL;
	n = collect_node_sets(check, node_sets);
	circle.n = zkl_find_deadlock(node_sets, n, me, circle, &members);
	circle.ids = members;
	if (circle.n > 0)
	{
		int			length = zkl_find_cycle(node_sets, n, me, circle, &path);

		if (length > 0)
			deadlock = describe(check, node_sets, path, length);
	}
	free(path);
	free(members);
	free(node_sets);
	return deadlock;
}
