/*-------------------------------------------------------------------------
 *
 * exam.c
 *		Is what looks like a deadlock still one?
 *
 * What the nodes below <root>/waits say is as old as they are; a session that
 * was in somebody's way may have left since.  So the queues of all who take part
 * are listed once more.  Their data, read for that, also says in words what they
 * wait for.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "waits.h"

/* An examination that came to no end is begun again after this. */
#define AGAIN_MS 200

/* A participant with a node. */
typedef struct Witness
{
	uint64_t	session;
	ZklCall    *reading;
	char	   *data;			/* cut into fields */
	uint64_t	instance;
	int			pid;
	char	   *server;
} Witness;

/* A queue that a participant waits in, or permits that it waits for one of. */
typedef struct Stand
{
	int			witness;
	bool		upgrade;
	bool		any;			/* of the blockers may let it go on */
	char	   *path;			/* below the root */
	char	   *child;			/* in a queue */
	int			limit;			/* of permits, up to which it would have one */
	int			n_own;			/* its session's nodes among them */
	char	   *wish;			/* "exclusive lock" and the like */
	char	   *lock;
	ZklCall    *listing;
	uint64_t   *blockers;
	int			n_blockers;
} Stand;

/* A session that waits for a participant in the lock manager of its server. */
typedef struct Follower
{
	int			witness;
	uint64_t	session;
	int			pid;
	char	   *waits_for;
} Follower;

struct ZklExam
{
	Witness    *witnesses;
	int			n_witnesses;
	Stand	   *stands;
	int			n_stands;
	Follower   *followers;
	int			n_followers;
	int			outstanding;	/* answers */
	bool		failed;
};

void
zkl__exam_free(ZklExam *exam)
{
	if (exam == NULL)
		return;
	for (int i = 0; i < exam->n_witnesses; i++)
		free(exam->witnesses[i].data);
	for (int i = 0; i < exam->n_stands; i++)
		free(exam->stands[i].blockers);
	free(exam->witnesses);
	free(exam->stands);
	free(exam->followers);
	free(exam);
}

static void
exam_over(ZklSession *session)
{
	zkl__exam_free(session->waits->exam);
	session->waits->exam = NULL;
}

/* Something came between. */
static void
examine_again(ZklSession *session)
{
	exam_over(session);
	zkl__look_later(session, AGAIN_MS);
}


/*
 * The verdict
 */

/* "exclusive lock "a"" and the like. */
static char *
stand_text(const Stand *stand)
{
	ZklText		t = {NULL, 0, 0, false};

	zkl_text_add(&t, "%s \"%s\"", stand->wish, stand->lock);
	if (t.failed)
	{
		free(t.text);
		return NULL;
	}
	return t.text;
}

/* A copy in the memory behind the edges. */
static char *
keep_text(char **end, const char *text)
{
	char	   *copy = *end;

	strcpy(copy, text);
	*end += strlen(text) + 1;
	return copy;
}

/* What one participant waits for, in words. */
typedef struct Line
{
	const Witness *witness;
	int			pid;
	const char *waits_for;
	char	   *made;			/* to be freed */
} Line;

static Line
line_of(const ZklExam *exam, int source)
{
	Line		line = {0};

	if (source < exam->n_stands)
	{
		line.witness = &exam->witnesses[exam->stands[source].witness];
		line.pid = line.witness->pid;
		line.made = stand_text(&exam->stands[source]);
		line.waits_for = line.made ? line.made : "";
	}
	else
	{
		const Follower *follower = &exam->followers[source - exam->n_stands];

		line.witness = &exam->witnesses[follower->witness];
		line.pid = follower->pid;
		line.waits_for = follower->waits_for;
	}
	return line;
}

/* The deadlock in one piece of memory; NULL when that is exhausted. */
static ZklDeadlock *
describe(const ZklExam *exam, const ZklNeed *needs, const int *path, int n)
{
	ZklDeadlock *deadlock;
	size_t		size = sizeof(ZklDeadlock) + (size_t) n * sizeof(ZklDeadlockEdge);
	char	   *end;

	for (int i = 0; i < n; i++)
	{
		Line		line = line_of(exam, needs[path[i]].source);

		size += strlen(line.witness->server) + strlen(line.waits_for) + 2;
		free(line.made);
	}
	deadlock = malloc(size);
	if (deadlock == NULL)
		return NULL;
	deadlock->n = n;
	end = (char *) &deadlock->edges[n];
	for (int i = 0; i < n; i++)
	{
		Line		line = line_of(exam, needs[path[i]].source);
		ZklDeadlockEdge *edge = &deadlock->edges[i];

		edge->instance = line.witness->instance;
		edge->pid = line.pid;
		edge->server = keep_text(&end, line.witness->server);
		edge->waits_for = keep_text(&end, line.waits_for);
		free(line.made);
	}
	return deadlock;
}

static int
collect_needs(const ZklExam *exam, ZklNeed *needs)
{
	int			n = 0;

	for (int i = 0; i < exam->n_stands; i++)
	{
		const Stand *stand = &exam->stands[i];
		int			step = stand->any ? stand->n_blockers : 1;

		for (int j = 0; j < stand->n_blockers; j += step)
			needs[n++] = (ZklNeed)
		{
			exam->witnesses[stand->witness].session, &stand->blockers[j], step,
				false, i
		};
	}
	for (int i = 0; i < exam->n_followers; i++)
	{
		const Follower *follower = &exam->followers[i];

		needs[n++] = (ZklNeed)
		{
			follower->session, &exam->witnesses[follower->witness].session, 1,
				false, exam->n_stands + i
		};
	}
	return n;
}

static ZklDeadlock *
verdict(const ZklSession *session)
{
	const ZklExam *exam = session->waits->exam;
	uint64_t	me = (uint64_t) session->connection.session_id;
	ZklCircle	circle = {session->waits->suspects, session->waits->n_suspects};
	ZklDeadlock *deadlock = NULL;
	ZklNeed    *needs;
	uint64_t   *members = NULL;
	int		   *path = NULL;
	size_t		size = (size_t) exam->n_followers + 1;
	int			n;

	for (int i = 0; i < exam->n_stands; i++)
		size += (size_t) exam->stands[i].n_blockers;
	needs = calloc(size, sizeof(ZklNeed));
	if (needs == NULL)
		return NULL;
	n = collect_needs(exam, needs);
	circle.n = zkl_find_deadlock(needs, n, me, circle, &members);
	circle.ids = members;
	if (circle.n > 0)
	{
		int			length = zkl_find_cycle(needs, n, me, circle, &path);

		if (length > 0)
			deadlock = describe(exam, needs, path, length);
	}
	free(path);
	free(members);
	free(needs);
	return deadlock;
}

static void
conclude(ZklSession *session)
{
	ZklWaits   *w = session->waits;

	if (w->exam->failed)
	{
		examine_again(session);
		return;
	}
	w->found = verdict(session);
	exam_over(session);
	if (w->found)
	{
		w->found->keeps_place = w->keeps_place;
		zkl__wake(session);
	}
	else
	{
		w->claims = false;
		w->doubted_ms = zkl_client_now();
		zkl__waits_doubt(session);
	}
}


/*
 * The queues
 */

static Stand *
stand_of_call(ZklExam *exam, const ZklCall *call)
{
	for (int i = 0; exam && i < exam->n_stands; i++)
		if (exam->stands[i].listing == call)
			return &exam->stands[i];
	return NULL;
}

/* Whom it waits for, as the list shows. */
static void
find_blockers(const ZklExam *exam, Stand *stand, const ZklResult *result)
{
	uint64_t	session = exam->witnesses[stand->witness].session;
	int			n_own;

	stand->blockers = calloc((size_t) result->n_children + 1, sizeof(uint64_t));
	if (stand->blockers == NULL)
		return;
	if (!stand->any)
		stand->n_blockers = zkl_blockers(result->children, result->n_children,
										 stand->child, stand->upgrade,
										 stand->blockers);
	else if (result->n_children > stand->limit)
	{
		stand->n_blockers = zkl_permit_owners(result->children, result->n_children,
											  session, stand->blockers, &n_own);
		if (n_own != stand->n_own)
			stand->n_blockers = 0;	/* got one, or gives one back */
	}
	if (stand->n_blockers < 0)
		stand->n_blockers = 0;
}

static void
queue_listed(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklExam    *exam = session->waits->exam;
	Stand	   *stand = stand_of_call(exam, call);

	if (stand == NULL)
		return;
	stand->listing = NULL;
	if (result->code == ZKL_RC_OK)
		find_blockers(exam, stand, result);
	else
		exam->failed = true;
	if (--exam->outstanding == 0)
		conclude(session);
}

static void
list_queues(ZklSession *session)
{
	ZklExam    *exam = session->waits->exam;

	for (int i = 0; i < exam->n_stands; i++)
	{
		Stand	   *stand = &exam->stands[i];
		char	   *path = zkl__path(session->root, stand->path);
		ZklCall    *call = path ? zkl__call_new(session, queue_listed, NULL, NULL)
			: NULL;

		stand->listing = zkl__call_sent(call, call &&
										zkl_client_list(session->client, path,
														&call->completion));
		free(path);
		if (stand->listing)
			exam->outstanding++;
		else
			exam->failed = true;
	}
	if (exam->outstanding == 0)
		examine_again(session);
}


/*
 * What the participants say
 */

/* Cuts off and returns what is before the separator, or the rest; NULL at the end. */
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
read_stand(Stand *stand, int witness, char *line)
{
	char	   *kind = cut(&line, '\t');

	stand->witness = witness;
	stand->upgrade = kind[0] == 'u';
	stand->any = kind[0] == 'p';
	stand->path = cut(&line, '\t');
	if (stand->any)
	{
		stand->limit = read_count(&line);
		stand->n_own = read_count(&line);
	}
	else
		stand->child = cut(&line, '\t');
	stand->wish = cut(&line, '\t');
	stand->lock = cut(&line, '\t');
	return stand->lock && stand->path[0] != '\0' && stand->path[0] != '/' &&
		strstr(stand->path, "//") == NULL;
}

static bool
read_follower(Follower *follower, int witness, char *line)
{
	char	   *session;
	char	   *pid;

	cut(&line, '\t');
	session = cut(&line, '\t');
	pid = cut(&line, '\t');
	follower->witness = witness;
	follower->waits_for = cut(&line, '\t');
	if (follower->waits_for == NULL)
		return false;
	follower->session = strtoull(session, NULL, 16);
	follower->pid = atoi(pid);
	return true;
}

static bool
read_witness(Witness *witness, char *line)
{
	char	   *instance = cut(&line, '\t');
	char	   *pid = cut(&line, '\t');

	witness->server = cut(&line, '\t');
	if (witness->server == NULL)
		return false;
	witness->instance = strtoull(instance, NULL, 16);
	witness->pid = atoi(pid);
	return true;
}

/* One more element; false when memory is exhausted. */
static bool
grow(void **array, int n, size_t size)
{
	void	   *larger;

	if ((n & (n - 1)) != 0)
		return true;			/* grows at powers of two */
	larger = realloc(*array, (n ? (size_t) n * 2 : 1) * size);
	if (larger)
		*array = larger;
	return larger != NULL;
}

static bool
read_line(ZklExam *exam, int witness, char *line)
{
	if (line[0] != '\0' && strchr("wup", line[0]) && line[1] == '\t')
	{
		if (!grow((void **) &exam->stands, exam->n_stands, sizeof(Stand)))
			return false;
		memset(&exam->stands[exam->n_stands], 0, sizeof(Stand));
		return read_stand(&exam->stands[exam->n_stands++], witness, line);
	}
	if (line[0] == 'd' && line[1] == '\t')
	{
		if (!grow((void **) &exam->followers, exam->n_followers, sizeof(Follower)))
			return false;
		return read_follower(&exam->followers[exam->n_followers++], witness, line);
	}
	return true;				/* of a later version */
}

static bool
read_data(ZklExam *exam, int i, const char *data, int length)
{
	Witness    *witness = &exam->witnesses[i];
	char	   *rest;
	char	   *line;

	witness->data = malloc((size_t) length + 1);
	if (witness->data == NULL)
		return false;
	if (length > 0)
		memcpy(witness->data, data, (size_t) length);
	witness->data[length] = '\0';
	rest = witness->data;
	if (!read_witness(witness, cut(&rest, '\n')))
		return false;
	while ((line = cut(&rest, '\n')) != NULL)
		if (!read_line(exam, i, line))
			return false;
	return true;
}

static void
data_read(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklExam    *exam = session->waits->exam;
	int			i = 0;

	while (exam && i < exam->n_witnesses && exam->witnesses[i].reading != call)
		i++;
	if (exam == NULL || i == exam->n_witnesses)
		return;
	exam->witnesses[i].reading = NULL;
	if (result->code != ZKL_RC_OK || result->data_len < 0 ||
		!read_data(exam, i, result->data, result->data_len))
		exam->failed = true;
	if (--exam->outstanding > 0)
		return;
	if (exam->failed)
		examine_again(session);
	else
		list_queues(session);
}

static void
read_witness_node(ZklSession *session, Witness *witness, const char *name)
{
	ZklExam    *exam = session->waits->exam;
	char	   *path = zkl__path(session->waits->path, name);
	ZklCall    *call = path ? zkl__call_new(session, data_read, NULL, NULL) : NULL;

	witness->reading = zkl__call_sent(call, call &&
									  zkl_client_get(session->client, path, false,
													 &call->completion));
	free(path);
	if (witness->reading)
		exam->outstanding++;
	else
		exam->failed = true;
}

static bool
is_suspect(const ZklWaits *w, uint64_t session)
{
	for (int i = 0; i < w->n_suspects; i++)
		if (w->suspects[i] == session)
			return true;
	return false;
}

/* Reads what all suspects say who wait in the ensemble. */
void
zkl__exam_begin(ZklSession *session, const ZklWaitPicture *picture)
{
	ZklWaits   *w = session->waits;

	w->exam = calloc(1, sizeof(ZklExam));
	if (w->exam)
		w->exam->witnesses = calloc((size_t) picture->n + 1, sizeof(Witness));
	if (w->exam == NULL || w->exam->witnesses == NULL)
	{
		examine_again(session);
		return;
	}
	for (int i = 0; i < picture->n; i++)
		if (is_suspect(w, picture->nodes[i].session))
		{
			Witness    *witness = &w->exam->witnesses[w->exam->n_witnesses++];

			witness->session = picture->nodes[i].session;
			read_witness_node(session, witness, picture->nodes[i].name);
		}
	if (w->exam->outstanding == 0)
		examine_again(session);
}
