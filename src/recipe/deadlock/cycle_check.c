/*-------------------------------------------------------------------------
 *
 * cycle_check.c
 *		Reads what a cycle check needs: the data of the participants' reports.
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
	zkl_reports_free(&check->reports);
	free(check->names);
	free(check->participants);
	free(check->waits);
	free(check->held);
	free(check);
}

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
	if (result->code == ZKL_RC_OK && (uint64_t) result->owner == participant->node->session &&
		result->data_len >= 0 && result->data_len <= ZKL_CHECK_MAX_DATA &&
		(size_t) result->data_len <= ZKL_CHECK_MAX_BYTES - check->bytes)
		participant->data = copy_data(result);
	if (participant->data)
		check->bytes += (size_t) result->data_len;
	check->failed = check->failed || participant->data == NULL;
	if (--check->outstanding == 0)
		zkl__wake(session);
}

static void
read_participant(ZklSession *session, const ZklWaitNode *node)
{
	ZklCycleCheck *check = zkl__waits(session)->check;
	ZklParticipant *participant = &check->participants[check->n_participants++];

	participant->node = node;
	participant->read_call =
		zkl__read_child(zkl__call_new(session, on_data_read, NULL, NULL), zkl__config(session)->waits_path,
						node->name, false);
	if (participant->read_call)
		check->outstanding++;
	else
		check->failed = true;
}

/*
 * Starts a check, which takes over the reports and their names: reads the data of all
 * suspects' reports.  Returns false if memory is exhausted.
 */
bool
zkl__check_begin(ZklSession *session, ZklWaitReports *reports, ZklNames **names,
				 bool keeps_place)
{
	ZklWaits   *w = zkl__waits(session);
	ZklCircle	suspects = {w->suspects, w->n_suspects};
	ZklCycleCheck *check = calloc(1, sizeof(ZklCycleCheck));

	if (check)
		check->participants = calloc((size_t) reports->n + 1, sizeof(ZklParticipant));
	if (check == NULL || check->participants == NULL)
	{
		free(check);
		return false;
	}
	w->check = check;
	check->keeps_place = keeps_place;
	check->reports = *reports;
	check->names = *names;
	memset(reports, 0, sizeof(*reports));
	*names = NULL;
	for (int i = 0; i < check->reports.n; i++)
		if (zkl_is_in_circle(suspects, check->reports.nodes[i].session))
			read_participant(session, &check->reports.nodes[i]);
	if (check->outstanding == 0)
		zkl__wake(session);
	return true;
}
