/*-------------------------------------------------------------------------
 *
 * scan_items.c
 *		The items of a scan: each is one znode to list, read or write.
 *
 * Other programs' znodes may have any name and any data, in any number, so what a
 * scan stores is bounded.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* More than any use of locks needs; so many take about 300 megabytes. */
#define MAX_ITEMS 1000000

/* Ends the scan with a status, unless it has ended already. */
void
zkl__scan_decide(ZklScan *scan, ZklStatus status, int raw_code)
{
	if (scan->status != ZKL_PENDING)
		return;
	scan->status = status;
	scan->raw_code = raw_code;
	zkl__wake(scan->session);
}

/* Appends the item to scan->unsent. */
void
zkl__scan_push(ZklScan *scan, ZklScanItem *item)
{
	item->next_unsent = NULL;
	*scan->unsent_end = item;
	scan->unsent_end = &item->next_unsent;
}

/* Puts an item back in front, so an unsynced scan starts with a list again. */
void
zkl__scan_put_back(ZklScan *scan, ZklScanItem *item)
{
	item->next_unsent = scan->unsent;
	if (scan->unsent == NULL)
		scan->unsent_end = &item->next_unsent;
	scan->unsent = item;
}

/* Adds an item for the child of a path, or for the path itself if child is NULL. */
void
zkl__scan_add(ZklScan *scan, ZklItemKind kind, ZklRole role,
			  ZklObject *object, const char *path, const char *child)
{
	ZklScanItem *item;

	if (scan->status != ZKL_PENDING)
		return;
	if (scan->n_items >= MAX_ITEMS)
	{
		zkl__scan_decide(scan, ZKL_TOO_MANY, 0);
		return;
	}
	item = calloc(1, sizeof(ZklScanItem));
	if (item)
		item->path = child ? zkl__path(path, child) : strdup(path);
	if (item == NULL || item->path == NULL)
	{
		free(item);
		zkl__scan_decide(scan, ZKL_NO_MEMORY, 0);
		return;
	}
	item->kind = kind;
	item->role = role;
	item->object = object;
	item->next = scan->items;
	scan->items = item;
	scan->n_items++;
	zkl__scan_push(scan, item);
}

/* Adds a lock or semaphore; returns NULL if memory is exhausted or the scan has ended. */
ZklObject *
zkl__scan_add_object(ZklScan *scan, ZklKind kind, const char *name, size_t length)
{
	ZklObject  *object = scan->status == ZKL_PENDING ? calloc(1, sizeof(ZklObject)) : NULL;

	if (object)
		object->name = strndup(name, length);
	if (object == NULL || object->name == NULL)
	{
		free(object);
		zkl__scan_decide(scan, ZKL_NO_MEMORY, 0);
		return NULL;
	}
	object->kind = kind;
	object->next = scan->objects;
	scan->objects = object;
	return object;
}

void
zkl__scan_free_items(ZklScan *scan)
{
	ZklScanItem *next_item;
	ZklObject  *next_object;

	for (ZklScanItem *item = scan->items; item; item = next_item)
	{
		next_item = item->next;
		free(item->path);
		free(item->data);
		free(item);
	}
	for (ZklObject *object = scan->objects; object; object = next_object)
	{
		next_object = object->next;
		free(object->name);
		free(object);
	}
}
