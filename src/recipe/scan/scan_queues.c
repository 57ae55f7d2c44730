/*-------------------------------------------------------------------------
 *
 * scan_queues.c
 *		Where queues and permits are: which znode leads a scan to which.
 *
 * Contains the layouts of locks and semaphores.  Sends nothing.  Called by scan.c at the beginning and for each answer.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Adds the znode of a lock below "path". */
static void
add_lock(ZklScan *scan, const char *path, const char *name)
{
	ZklObject  *object = zkl__scan_add_object(scan, ZKL_KIND_LOCK, name, strlen(name));

	if (object)
		zkl__scan_add(scan, ITEM_QUEUE, ROLE_CONTENDER, object, path, name);
}

/* Adds the znode of a semaphore below "path". */
static void
add_semaphore(ZklScan *scan, const char *path, const char *name)
{
	ZklObject  *object = zkl__scan_add_object(scan, ZKL_KIND_SEMAPHORE, name, strlen(name));

	if (object == NULL)
		return;
	zkl__scan_add(scan, ITEM_SEMAPHORE, ROLE_PERMIT, object, path, name);
	zkl__scan_add(scan, ITEM_CAPACITY, ROLE_PERMIT, object, path, name);
}

static void
on_queue_children(ZklScan *scan, const ZklScanItem *item, const ZklResult *result)
{
	ZklContender unused;

	for (int i = 0; i < result->n_children; i++)
		if (item->role == ROLE_PERMIT ||
			zkl_parse_child(result->children[i], &unused))
			zkl__scan_add(scan, ITEM_NODE, item->role, item->object, item->path,
						  result->children[i]);
}

/* A semaphore has a znode each for waiters and permits. */
static void
on_semaphore_children(ZklScan *scan, const ZklScanItem *item, const ZklResult *result)
{
	for (int i = 0; i < result->n_children; i++)
	{
		const char *child = result->children[i];

		if (strcmp(child, ZKL_PERMITS_QUEUE) == 0)
			zkl__scan_add(scan, ITEM_QUEUE, ROLE_WAITER, item->object, item->path, child);
		else if (strcmp(child, ZKL_PERMITS) == 0)
			zkl__scan_add(scan, ITEM_QUEUE, ROLE_PERMIT, item->object, item->path, child);
	}
}

/* Adds the items that follow from an answer. */
void
zkl__scan_follow(ZklScan *scan, ZklScanItem *item, const ZklResult *result)
{
	switch (item->kind)
	{
		case ITEM_LOCKS:
			for (int i = 0; i < result->n_children; i++)
				add_lock(scan, item->path, result->children[i]);
			break;
		case ITEM_SEMAPHORES:
			for (int i = 0; i < result->n_children; i++)
				add_semaphore(scan, item->path, result->children[i]);
			break;
		case ITEM_QUEUE:
			on_queue_children(scan, item, result);
			break;
		case ITEM_SEMAPHORE:
			on_semaphore_children(scan, item, result);
			break;
		case ITEM_CAPACITY:
			(void) zkl_parse_capacity(result->data, result->data_len, &item->object->capacity);
			break;
		case ITEM_NODE:
		case ITEM_REVOKE:
			break;				/* lead to no other znode */
	}
}

/* Adds the first items of a scan. */
void
zkl__scan_begin(ZklScan *scan, const char *name)
{
	const ZklConfig *config = zkl__config(scan->session);

	if (name == NULL)
	{
		zkl__scan_add(scan, ITEM_LOCKS, ROLE_CONTENDER, NULL, config->locks_path, NULL);
		zkl__scan_add(scan, ITEM_SEMAPHORES, ROLE_PERMIT, NULL, config->semaphores_path, NULL);
		return;
	}
	add_lock(scan, config->locks_path, name);
	if (scan->kind == ZKL_SCAN)
		add_semaphore(scan, config->semaphores_path, name);
}
