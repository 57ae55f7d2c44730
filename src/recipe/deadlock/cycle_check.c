/*-------------------------------------------------------------------------
 *
 * cycle_check.c
 *		Reads what a cycle check needs: the data of the participants' reports, and
 *		the queues that these name, each queue once.
 *
 * The answers are only stored here; the owner's thread works on them
 * (deadlock_search.c, check_result.c).  The session's mutex is held.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "cycle_check.h"

void
zkl__check_free(ZklCycleCheck *check)
{
	if (check == NULL)
		return;
	for (int i = 0; i < check->n_participants; i++)
		free(check->participants[i].data);
	for (int i = 0; i < check->n_queue_entries; i++)
		free(check->queue_entries[i].blockers);
	for (int i = 0; i < check->n_lists; i++)
		free(check->lists[i].names);
	free(check->participants);
	free(check->queue_entries);
	free(check->lists);
	free(check->waiters);
	free(check->held);
	free(check);
}

/* Counts an answer; the last one wakes the owner, which continues the check. */
static void
count_answer(ZklSession *session)
{
	if (--zkl__waits(session)->check->outstanding == 0)
		zkl__wake(session);
}


/*
 * The queues
 */

static ZklCheckList *
list_of_call(ZklCycleCheck *check, const ZklCall *call)
{
	for (int i = 0; check && i < check->n_lists; i++)
		if (check->lists[i].list_call == call)
			return &check->lists[i];
	return NULL;
}

static void
on_queue_listed(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklCycleCheck *check = zkl__waits(session)->check;
	ZklCheckList *list = list_of_call(check, call);
	bool		too_many;

	if (list == NULL)
		return;
	list->list_call = NULL;
	if (result->code == ZKL_RC_OK)
		list->names = zkl_names_copy(result->children, result->n_children,
									 ZKL_CHECK_MAX_CHILDREN,
									 ZKL_CHECK_MAX_BYTES - check->bytes, &too_many);
	for (int i = 0; list->names && i < list->names->n; i++)
		check->bytes += strlen(list->names->names[i]) + 1;
	check->failed = check->failed || list->names == NULL;
	count_answer(session);
}

void
zkl__check_list_queues(ZklSession *session)
{
	ZklCycleCheck *check = zkl__waits(session)->check;

	for (int i = 0; i < check->n_lists; i++)
	{
		ZklCheckList *list = &check->lists[i];
		char	   *path = zkl__path(zkl__config(session)->root,
									 check->queue_entries[list->first].path);

		if (path)
			list->list_call =
				zkl__list_synced(zkl__call_new(session, on_queue_listed, NULL, NULL), path, false);
		free(path);
		if (list->list_call)
			check->outstanding++;
		else
			check->failed = true;
	}
	if (check->outstanding == 0)
		zkl__wake(session);
}


/*
 * The data of the participants
 */

/* Returns a NUL-terminated copy, or NULL if memory is exhausted. */
static char *
copy_data(const ZklResult *result)
{
	char	   *data = malloc((size_t) result->data_len + 1);

	if (data && result->data_len > 0)
		memcpy(data, result->data, (size_t) result->data_len);
	if (data)
		data[result->data_len] = '\0';
	return data;
}

/* Stores a report's data, if the node belongs to the session whose wait it reports. */
static void
on_data_read(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklCycleCheck *check = zkl__waits(session)->check;
	ZklParticipant *participant;
	int			i = 0;

	while (check && i < check->n_participants && check->participants[i].read_call != call)
		i++;
	if (check == NULL || i == check->n_participants)
		return;
	participant = &check->participants[i];
	participant->read_call = NULL;
	if (result->code == ZKL_RC_OK && (uint64_t) result->owner == participant->session &&
		result->data_len >= 0 && result->data_len <= ZKL_CHECK_MAX_DATA &&
		(size_t) result->data_len <= ZKL_CHECK_MAX_BYTES - check->bytes)
		participant->data = copy_data(result);
	if (participant->data)
		check->bytes += (size_t) result->data_len;
	check->failed = check->failed || participant->data == NULL;
	count_answer(session);
}

static void
read_participant_node(ZklSession *session, ZklParticipant *participant, const char *name)
{
	ZklCycleCheck *check = zkl__waits(session)->check;

	participant->read_call =
		zkl__read_child(zkl__call_new(session, on_data_read, NULL, NULL),
						zkl__config(session)->waits_path,
						name, false);
	if (participant->read_call)
		check->outstanding++;
	else
		check->failed = true;
}

/* Starts a check: reads the reports of all suspects.  No check if memory is exhausted. */
void
zkl__check_begin(ZklSession *session, const ZklWaitReports *reports)
{
	ZklWaits   *w = zkl__waits(session);
	ZklCircle	suspects = {w->suspects, w->n_suspects};

	w->check = calloc(1, sizeof(ZklCycleCheck));
	if (w->check)
		w->check->participants = calloc((size_t) reports->n + 1, sizeof(ZklParticipant));
	if (w->check == NULL || w->check->participants == NULL)
	{
		zkl__check_free(w->check);
		w->check = NULL;
		return;
	}
	for (int i = 0; i < reports->n; i++)
		if (zkl_is_in_circle(suspects, reports->nodes[i].session))
		{
			ZklParticipant *participant = &w->check->participants[w->check->n_participants++];

			participant->session = reports->nodes[i].session;
			read_participant_node(session, participant, reports->nodes[i].name);
		}
	if (w->check->outstanding == 0)
		zkl__wake(session);
}
