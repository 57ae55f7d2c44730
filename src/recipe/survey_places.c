/*-------------------------------------------------------------------------
 *
 * survey_places.c
 *		Which znode leads to which: where queues and permits are.
 *
 * Knows the layouts of locks and semaphores, ours, Curator's and kazoo's, and
 * sends nothing: called by survey.c, at the beginning and with what was listed.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "survey.h"

#define KAZOO_SUFFIX "-__lock__"

static ZklPlace *
add_place(ZklSurvey *survey, ZklKind kind, const char *name, size_t length)
{
	ZklPlace   *place = calloc(1, sizeof(ZklPlace));

	if (place)
		place->name = strndup(name, length);
	if (place == NULL || place->name == NULL)
	{
		free(place);
		zkl__survey_decide(survey, ZKL_NO_MEMORY, 0);
		return NULL;
	}
	place->kind = kind;
	place->next = survey->places;
	survey->places = place;
	return place;
}

/* The znode of a lock below "path". */
static void
add_lock(ZklSurvey *survey, const char *path, const char *name)
{
	ZklPlace   *place = add_place(survey, ZKL_KIND_LOCK, name, strlen(name));

	if (place)
		zkl__survey_add(survey, ITEM_QUEUE, ROLE_CONTENDER, place, path, name);
}

/* Is it named like the znode in which kazoo's clients wait?  For which semaphore? */
static size_t
kazoo_name_length(const char *name)
{
	size_t		length = strlen(name);
	size_t		n = strlen(KAZOO_SUFFIX);

	return length > n && strcmp(name + length - n, KAZOO_SUFFIX) == 0
		? length - n : 0;
}

/* The znode of a semaphore below "path". */
static void
add_semaphore(ZklSurvey *survey, const char *path, const char *name)
{
	ZklPlace   *place = add_place(survey, ZKL_KIND_SEMAPHORE, name, strlen(name));

	if (place == NULL)
		return;
	zkl__survey_add(survey, ITEM_SEMAPHORE, ROLE_POOL, place, path, name);
	zkl__survey_add(survey, ITEM_SIZE, ROLE_POOL, place, path, name);
}

/* The znode below "path" in which kazoo's clients wait for a semaphore. */
static void
add_kazoo_waiters(ZklSurvey *survey, const char *path, const char *znode)
{
	ZklPlace   *place = add_place(survey, ZKL_KIND_SEMAPHORE, znode,
								  kazoo_name_length(znode));

	if (place)
		zkl__survey_add(survey, ITEM_QUEUE, ROLE_KAZOO_WAITER, place, path, znode);
}

static void
queue_listed(ZklSurvey *survey, const ZklItem *item, const ZklResult *result)
{
	ZklContender unused;

	for (int i = 0; i < result->n_children; i++)
		if (item->role == ROLE_LEASE ||
			zkl_parse_child(result->children[i], &unused))
			zkl__survey_add(survey, ITEM_NODE, item->role, item->place, item->path,
							result->children[i]);
}

/* Curator keeps two kinds of nodes apart; in kazoo's layout, each child is a permit. */
static void
semaphore_listed(ZklSurvey *survey, const ZklItem *item, const ZklResult *result)
{
	bool		for_waiters = kazoo_name_length(item->place->name) > 0;

	for (int i = 0; i < result->n_children; i++)
	{
		const char *child = result->children[i];

		if (strcmp(child, "locks") == 0)
			zkl__survey_add(survey, ITEM_QUEUE, ROLE_WAITER, item->place, item->path, child);
		else if (strcmp(child, "leases") == 0)
			zkl__survey_add(survey, ITEM_QUEUE, ROLE_LEASE, item->place, item->path, child);
		else if (!for_waiters)
			zkl__survey_add(survey, ITEM_NODE, ROLE_POOL, item->place, item->path, child);
	}
}

static void
semaphores_listed(ZklSurvey *survey, const ZklItem *item, const ZklResult *result)
{
	for (int i = 0; i < result->n_children; i++)
	{
		add_semaphore(survey, item->path, result->children[i]);
		if (kazoo_name_length(result->children[i]) > 0)
			add_kazoo_waiters(survey, item->path, result->children[i]);
	}
}

static void
size_read(ZklItem *item, const ZklResult *result)
{
	int			size = 0;

	for (int i = 0; i < result->data_len; i++)
		if (result->data[i] < '0' || result->data[i] > '9' || size > 1000000)
			return;
		else
			size = size * 10 + (result->data[i] - '0');
	item->place->size = size;
}

void
zkl__survey_lead_on(ZklSurvey *survey, ZklItem *item, const ZklResult *result)
{
	switch (item->kind)
	{
		case ITEM_LOCKS:
			for (int i = 0; i < result->n_children; i++)
				add_lock(survey, item->path, result->children[i]);
			break;
		case ITEM_SEMAPHORES:
			semaphores_listed(survey, item, result);
			break;
		case ITEM_QUEUE:
			queue_listed(survey, item, result);
			break;
		case ITEM_SEMAPHORE:
			semaphore_listed(survey, item, result);
			break;
		case ITEM_SIZE:
			size_read(item, result);
			break;
		case ITEM_NODE:
		case ITEM_REVOKE:
			break;				/* lead nowhere */
	}
}

static void
begin_with_semaphore(ZklSurvey *survey, const char *path, const char *name)
{
	char	   *waiters = malloc(strlen(name) + sizeof(KAZOO_SUFFIX));

	if (waiters == NULL)
	{
		zkl__survey_decide(survey, ZKL_NO_MEMORY, 0);
		return;
	}
	strcat(strcpy(waiters, name), KAZOO_SUFFIX);
	add_semaphore(survey, path, name);
	add_kazoo_waiters(survey, path, waiters);
	free(waiters);
}

void
zkl__survey_begin(ZklSurvey *survey, ZklKind kind, const char *name)
{
	const char *locks = survey->session->locks_path;
	char	   *semaphores = zkl__path(survey->session->root, "semaphores");

	if (semaphores == NULL)
		zkl__survey_decide(survey, ZKL_NO_MEMORY, 0);
	else if (name == NULL)
	{
		zkl__survey_add(survey, ITEM_LOCKS, ROLE_CONTENDER, NULL, locks, NULL);
		zkl__survey_add(survey, ITEM_SEMAPHORES, ROLE_POOL, NULL, semaphores, NULL);
	}
	else if (kind == ZKL_KIND_LOCK)
		add_lock(survey, locks, name);
	else
		begin_with_semaphore(survey, semaphores, name);
	free(semaphores);
}
