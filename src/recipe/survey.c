/*-------------------------------------------------------------------------
 *
 * survey.c
 *		Reading what stands in the queues, whoever put it there.
 *
 * Each znode to be listed or read is an item; what a list shows becomes further
 * items (survey_places.c).  A bounded number of them is asked about at a time.  An item whose
 * answer was lost is asked about again, which the next connection or the retry
 * sees to; so all that a survey knows is what is answered and what is to do.
 *
 * A znode that is gone is left out, one that may not be read is counted.  Other
 * programs' znodes may have any name, any data, and come in any number: what is
 * kept of them is bounded.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "survey.h"

/* Enough to fill the line, not so many that a server puts others off. */
#define WINDOW 100

/* More than any use of locks makes; so many would take some 300 megabytes. */
#define MAX_ITEMS 1000000

/* What is kept of a node's data; ours are shorter. */
#define MAX_DATA 4096

void
zkl__survey_decide(ZklSurvey *survey, ZklStatus status, int raw_code)
{
	if (survey->status != ZKL_PENDING)
		return;
	survey->status = status;
	survey->raw_code = raw_code;
	zkl__wake(survey->session);
}


/*
 * Items
 */

static void
push_todo(ZklSurvey *survey, ZklItem *item)
{
	item->next_todo = NULL;
	*survey->todo_end = item;
	survey->todo_end = &item->next_todo;
}

static ZklItem *
pop_todo(ZklSurvey *survey)
{
	ZklItem    *item = survey->todo;

	survey->todo = item->next_todo;
	if (survey->todo == NULL)
		survey->todo_end = &survey->todo;
	return item;
}

/* To be asked about: the child of a path, or the path itself. */
void
zkl__survey_add(ZklSurvey *survey, ZklItemKind kind, ZklRole role,
				ZklPlace *place, const char *path, const char *child)
{
	ZklItem    *item;

	if (survey->status != ZKL_PENDING)
		return;
	if (survey->n_items >= MAX_ITEMS)
	{
		zkl__survey_decide(survey, ZKL_TOO_MANY, 0);
		return;
	}
	item = calloc(1, sizeof(ZklItem));
	if (item)
		item->path = child ? zkl__path(path, child) : strdup(path);
	if (item == NULL || item->path == NULL)
	{
		free(item);
		zkl__survey_decide(survey, ZKL_NO_MEMORY, 0);
		return;
	}
	item->kind = kind;
	item->role = role;
	item->place = place;
	item->next = survey->items;
	survey->items = item;
	survey->n_items++;
	push_todo(survey, item);
}


/*
 * Answers
 */

static void
node_read(ZklSurvey *survey, ZklItem *item, const ZklResult *result)
{
	int			n = result->data_len < MAX_DATA ? result->data_len : MAX_DATA;

	item->is_seen = true;
	item->entry.is_readable = true;
	item->version = result->version;
	item->entry.token = result->czxid;
	item->entry.session_id = result->owner;
	item->entry.ctime_ms = result->ctime_ms;
	if (n <= 0 || result->data == NULL)
		return;
	item->data = malloc((size_t) n);
	if (item->data == NULL)
	{
		zkl__survey_decide(survey, ZKL_NO_MEMORY, 0);
		return;
	}
	memcpy(item->data, result->data, (size_t) n);
	item->entry.data_len = n;
}

static void
item_answered(ZklSurvey *survey, ZklItem *item, const ZklResult *result)
{
	switch (item->kind)
	{
		case ITEM_LOCKS:
		case ITEM_SEMAPHORES:
		case ITEM_QUEUE:
		case ITEM_SEMAPHORE:
		case ITEM_SIZE:
			zkl__survey_lead_on(survey, item, result);
			break;
		case ITEM_NODE:
			node_read(survey, item, result);
			break;
		case ITEM_REVOKE:
			survey->n_asked++;
			break;
	}
}

static void
answered(ZklCall *call, const ZklResult *result)
{
	ZklSurvey  *survey = call->survey;
	ZklItem    *item = call->item;

	survey->in_flight--;
	if (survey->status != ZKL_PENDING)
		return;
	switch (result->code)
	{
		case ZKL_RC_OK:
			item_answered(survey, item, result);
			break;
		case ZKL_RC_NO_NODE:
			/* It may have been asked, and has let go. */
			survey->n_asked += item->is_unknown;
			break;
		case ZKL_RC_BAD_VERSION:
			/* By us, or by its holder, who puts back what we have not told. */
			if (item->is_unknown)
				survey->n_asked++;
			else
			{
				item->version = ZKL_ANY_VERSION;
				push_todo(survey, item);
			}
			break;
		case ZKL_RC_NO_AUTH:
			survey->n_denied += item->kind != ITEM_SIZE;
			item->is_seen = true;
			break;
		case ZKL_RC_CONNECTION_LOSS:
			item->is_unknown = item->kind == ITEM_REVOKE;
			push_todo(survey, item);
			return;
		default:
			zkl__survey_decide(survey, zkl__status_of(result->code), result->raw_code);
	}
	zkl__survey_drive(survey);
}

static void
synced(ZklCall *call, const ZklResult *result)
{
	ZklSurvey  *survey = call->survey;

	survey->syncing = NULL;
	if (survey->status != ZKL_PENDING || result->code == ZKL_RC_CONNECTION_LOSS)
		return;
	if (result->code != ZKL_RC_OK)
		zkl__survey_decide(survey, zkl__status_of(result->code), result->raw_code);
	survey->is_synced = true;
	zkl__survey_drive(survey);
}


/*
 * Questions
 */

static ZklCall *
survey_call(ZklSurvey *survey, ZklHandler handler, ZklItem *item)
{
	ZklCall    *call = zkl__call_new(survey->session, handler, NULL, NULL);

	if (call)
	{
		call->survey = survey;
		call->item = item;
		survey->calls++;
	}
	return call;
}

/*
 * What is read behind a sync is not older than the sync: the server that we
 * are connected to may lag behind the others.
 */
static void
send_sync(ZklSurvey *survey)
{
	ZklCall    *call = survey_call(survey, synced, NULL);

	survey->syncing =
		zkl__call_sent(call, call && zkl_client_sync(survey->session->client,
													 survey->session->root,
													 &call->completion));
}

static bool
submit(ZklClient *client, const ZklItem *item, ZklCompletion *completion)
{
	switch (item->kind)
	{
		case ITEM_LOCKS:
		case ITEM_SEMAPHORES:
		case ITEM_QUEUE:
		case ITEM_SEMAPHORE:
			return zkl_client_list(client, item->path, completion);
		case ITEM_SIZE:
		case ITEM_NODE:
			return zkl_client_get(client, item->path, false, completion);
		case ITEM_REVOKE:
			return zkl_client_set(client, item->path, ZKL_REVOKE_MESSAGE,
								  strlen(ZKL_REVOKE_MESSAGE), item->version, completion);
	}
	return false;
}

static bool
send_item(ZklSurvey *survey)
{
	ZklItem    *item = pop_todo(survey);
	ZklCall    *call = survey_call(survey, answered, item);

	if (zkl__call_sent(call, call && submit(survey->session->client, item,
											&call->completion)) == NULL)
	{
		push_todo(survey, item);
		return false;
	}
	survey->in_flight++;
	return true;
}

/*
 * Everything is read: who holds the lock is to be told, by one node each.  What
 * was told and not confirmed is told again only to nodes that have not changed.
 */
static void
start_revoking(ZklSurvey *survey)
{
	survey->is_revoking = true;
	for (ZklItem *item = survey->items; item; item = item->next)
		if (item->kind == ITEM_NODE && item->is_seen && item->entry.position == 0 &&
			!item->is_anchor)
		{
			item->kind = ITEM_REVOKE;
			push_todo(survey, item);
		}
}

static bool
is_through(const ZklSurvey *survey)
{
	return survey->status == ZKL_PENDING && survey->is_synced &&
		survey->todo == NULL && survey->in_flight == 0;
}

static void
go_on(ZklSurvey *survey)
{
	if (!survey->is_synced)
	{
		if (survey->syncing == NULL)
			send_sync(survey);
		return;
	}
	while (survey->todo && survey->in_flight < WINDOW)
		if (!send_item(survey))
			return;
}

/* Asks as much as may be asked at a time; decides when nothing is left to ask. */
void
zkl__survey_drive(ZklSurvey *survey)
{
	if (survey->status != ZKL_PENDING ||
		survey->session->state != ZKL_SESSION_CONNECTED)
		return;
	go_on(survey);
	if (!is_through(survey))
		return;
	if (!survey->is_revoking && !zkl__survey_order(survey))
		zkl__survey_decide(survey, ZKL_NO_MEMORY, 0);
	if (survey->revokes && !survey->is_revoking)
	{
		start_revoking(survey);
		go_on(survey);
	}
	if (is_through(survey))
		zkl__survey_decide(survey, ZKL_OK, 0);
}

void
zkl__surveys_drive(ZklSession *session)
{
	for (ZklSurvey *survey = session->surveys; survey; survey = survey->next)
		zkl__survey_drive(survey);
}


/*
 * The public face
 */

static void
survey_free(ZklSurvey *survey)
{
	ZklItem    *next_item;
	ZklPlace   *next_place;

	if (survey->prev)
		survey->prev->next = survey->next;
	else
		survey->session->surveys = survey->next;
	if (survey->next)
		survey->next->prev = survey->prev;
	for (ZklItem *item = survey->items; item; item = next_item)
	{
		next_item = item->next;
		free(item->path);
		free(item->data);
		free(item);
	}
	for (ZklPlace *place = survey->places; place; place = next_place)
	{
		next_place = place->next;
		free(place->name);
		free(place);
	}
	free(survey->entries);
	free(survey);
}

/* Frees those that are done with, or all. */
void
zkl__surveys_sweep(ZklSession *session, bool all)
{
	ZklSurvey  *next;

	for (ZklSurvey *survey = session->surveys; survey; survey = next)
	{
		next = survey->next;
		if (all || (survey->ended && survey->calls == 0))
			survey_free(survey);
	}
}

static ZklSurvey *
survey_new(ZklSession *session)
{
	ZklSurvey  *survey = calloc(1, sizeof(ZklSurvey));

	if (survey == NULL)
		return NULL;
	survey->session = session;
	survey->status = ZKL_PENDING;
	survey->todo_end = &survey->todo;
	survey->next = session->surveys;
	if (survey->next)
		survey->next->prev = survey;
	session->surveys = survey;
	return survey;
}

/* One lock or semaphore, or with NULL as name all. */
static ZklSurvey *
start(ZklSession *session, ZklKind kind, const char *name, bool revokes)
{
	ZklSurvey  *survey;

	zkl__session_lock(session);
	survey = survey_new(session);
	if (survey)
	{
		survey->revokes = revokes;
		zkl__survey_begin(survey, kind, name);
		zkl__survey_drive(survey);
	}
	zkl__session_unlock(session);
	return survey;
}

ZklSurvey *
zkl_survey_all(ZklSession *session)
{
	return start(session, ZKL_KIND_LOCK, NULL, false);
}

ZklSurvey *
zkl_survey_one(ZklSession *session, ZklKind kind, const char *name)
{
	return start(session, kind, name, false);
}

ZklSurvey *
zkl_revoke(ZklSession *session, const char *name)
{
	return start(session, ZKL_KIND_LOCK, name, true);
}

ZklStatus
zkl_survey_status(ZklSurvey *survey)
{
	ZklSession *session = survey->session;
	ZklStatus	status;

	zkl__session_lock(session);
	status = survey->status;
	if (status == ZKL_PENDING && zkl__is_final(session))
		status = session->state == ZKL_SESSION_AUTH_FAILED
			? ZKL_AUTH_FAILED : ZKL_SESSION_LOST;
	zkl__session_unlock(session);
	return status;
}

void
zkl_survey_info(ZklSurvey *survey, ZklSurveyInfo *info)
{
	zkl__session_lock(survey->session);
	info->entries = survey->entries;
	info->n_entries = survey->n_entries;
	info->n_denied = survey->n_denied;
	info->n_asked = survey->n_asked;
	info->raw_code = survey->raw_code;
	zkl__session_unlock(survey->session);
}

void
zkl_survey_end(ZklSurvey *survey)
{
	ZklSession *session = survey->session;

	zkl__session_lock(session);
	if (survey->status == ZKL_PENDING)
		survey->status = ZKL_SESSION_LOST;
	survey->ended = true;
	session->garbage = true;
	zkl__session_unlock(session);
}
