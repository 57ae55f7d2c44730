/*-------------------------------------------------------------------------
 *
 * scan.c
 *		Reads all queues, including the nodes of other programs.
 *
 * Each znode to list or read is an item, and each list adds items for the children
 * (scan_queues.c).  The number of requests in flight is bounded; one request may read
 * many items (scan_batch.c).  If an answer is lost, its item returns to scan->todo
 * and is sent again after reconnecting or by the session's retry timer.
 *
 * A znode that does not exist any more is left out.  A znode that may not be read is
 * counted.  Other programs' znodes may have any name and any data, in any number, so
 * what a scan stores is bounded.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "scan.h"

/* Requests in flight: each for many items; each for one item. */
#define BATCHES 4
#define WINDOW 100

/* More than any use of locks needs; so many take about 300 megabytes. */
#define MAX_ITEMS 1000000

/* Bytes kept of a node's data; zklock's own are shorter. */
#define MAX_DATA 4096

void
zkl__scan_decide(ZklScan *scan, ZklStatus status, int raw_code)
{
	if (scan->status != ZKL_PENDING)
		return;
	scan->status = status;
	scan->raw_code = raw_code;
	zkl__wake(scan->session);
}


/*
 * Items
 */

/* Appends the item to scan->todo. */
void
zkl__scan_push(ZklScan *scan, ZklScanItem *item)
{
	item->next_todo = NULL;
	*scan->todo_end = item;
	scan->todo_end = &item->next_todo;
}

/* Puts the item back in front, so an unsynced scan starts with a list again. */
void
zkl__scan_push_again(ZklScan *scan, ZklScanItem *item)
{
	item->next_todo = scan->todo;
	scan->todo = item;
	if (item->next_todo == NULL)
		scan->todo_end = &item->next_todo;
}

/* Takes the first item of scan->todo, which must not be empty. */
ZklScanItem *
zkl__scan_pop(ZklScan *scan)
{
	ZklScanItem *item = scan->todo;

	scan->todo = item->next_todo;
	if (scan->todo == NULL)
		scan->todo_end = &scan->todo;
	return item;
}

/* Adds an item for the child of a path, or for the path itself if child is NULL. */
void
zkl__scan_add(ZklScan *scan, ZklItemKind kind, ZklRole role,
			  ZklPlace *place, const char *path, const char *child)
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
	item->place = place;
	item->next = scan->items;
	scan->items = item;
	scan->n_items++;
	zkl__scan_push(scan, item);
}


/*
 * Answers
 */

static void
node_read(ZklScan *scan, ZklScanItem *item, const ZklResult *result)
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
		zkl__scan_decide(scan, ZKL_NO_MEMORY, 0);
		return;
	}
	memcpy(item->data, result->data, (size_t) n);
	item->entry.data_len = n;
}

static void
item_answered(ZklScan *scan, ZklScanItem *item, const ZklResult *result)
{
	switch (item->kind)
	{
		case ITEM_LOCKS:
		case ITEM_SEMAPHORES:
		case ITEM_QUEUE:
		case ITEM_SEMAPHORE:
		case ITEM_CAPACITY:
			zkl__scan_follow(scan, item, result);
			break;
		case ITEM_NODE:
			node_read(scan, item, result);
			break;
		case ITEM_REVOKE:
			scan->n_asked++;
			break;
	}
}

/* Handles the result for one item. */
void
zkl__scan_settle(ZklScan *scan, ZklScanItem *item, const ZklResult *result)
{
	switch (result->code)
	{
		case ZKL_RC_OK:
			item_answered(scan, item, result);
			break;
		case ZKL_RC_NO_NODE:
			/* A holder may have released because of a write whose answer was lost. */
			scan->n_asked += item->is_unknown;
			break;
		case ZKL_RC_BAD_VERSION:
			/* After a lost answer: the write or the holder's restore has changed it. */
			if (item->is_unknown)
				scan->n_asked++;
			else
			{
				item->version = ZKL_ANY_VERSION;
				zkl__scan_push(scan, item);
			}
			break;
		case ZKL_RC_NO_AUTH:
			scan->n_denied += item->kind != ITEM_CAPACITY;
			item->is_seen = true;
			break;
		case ZKL_RC_CONNECTION_LOSS:
			item->is_unknown = item->kind == ITEM_REVOKE;
			zkl__scan_push_again(scan, item);
			break;
		default:
			zkl__scan_decide(scan, zkl__status_of(result->code), result->raw_code);
	}
}

static void
on_answered(ZklCall *call, const ZklResult *result)
{
	ZklScan    *scan = call->subject;

	scan->in_flight--;
	if (scan->status != ZKL_PENDING)
		return;
	scan->is_synced = scan->is_synced || result->code != ZKL_RC_CONNECTION_LOSS;
	zkl__scan_settle(scan, call->detail, result);
	if (result->code != ZKL_RC_CONNECTION_LOSS)
		zkl__scan_drive(scan);
}


/*
 * Requests
 */

ZklCall *
zkl__scan_call(ZklScan *scan, ZklHandler handler, ZklScanItem *item)
{
	ZklCall    *call = zkl__call_new(scan->session, handler, scan, &scan->uses);

	if (call)
		call->detail = item;
	return call;
}

static bool
submit(ZklClient *client, const ZklScanItem *item, ZklCompletion *completion)
{
	switch (item->kind)
	{
		case ITEM_LOCKS:
		case ITEM_SEMAPHORES:
		case ITEM_QUEUE:
		case ITEM_SEMAPHORE:
			return zkl_client_list(client, item->path, completion);
		case ITEM_CAPACITY:
		case ITEM_NODE:
			return zkl_client_get(client, item->path, false, completion);
		case ITEM_REVOKE:
			return zkl_client_set(client, item->path, ZKL_REVOKE_MESSAGE,
								  strlen(ZKL_REVOKE_MESSAGE), item->version, completion);
	}
	return false;
}

static bool
send_item(ZklScan *scan)
{
	ZklScanItem *item = zkl__scan_pop(scan);
	ZklCall    *call = zkl__scan_call(scan, on_answered, item);

	if (!scan->is_synced)
		call = zkl__list_synced(call, item->path, false);
	else
		call = zkl__call_sent(call, call && submit(zkl__client(scan->session), item,
												   &call->completion));
	if (call == NULL)
	{
		zkl__scan_push_again(scan, item);
		return false;
	}
	scan->in_flight++;
	return true;
}

static bool
is_through(const ZklScan *scan)
{
	return scan->status == ZKL_PENDING && scan->is_synced &&
		scan->todo == NULL && scan->in_flight == 0;
}

/* The first item is a list, sent alone and synced: all later reads are as new as that. */
static void
go_on(ZklScan *scan)
{
	bool		alone = scan->one_by_one || scan->is_revoking;
	int			window = !scan->is_synced ? 1 : alone ? WINDOW : BATCHES;

	while (scan->todo && scan->in_flight < window)
	{
		bool		one = alone || !scan->is_synced || scan->todo->next_todo == NULL;

		if (!(one ? send_item : zkl__scan_send_batch) (scan))
			return;
	}
}

/* Sends as many requests as may be in flight; ends the scan when nothing is left. */
void
zkl__scan_drive(ZklScan *scan)
{
	if (scan->status != ZKL_PENDING ||
		!zkl__is_connected(scan->session))
		return;
	go_on(scan);
	if (!is_through(scan))
		return;
	if (!scan->is_revoking && !zkl__scan_order(scan))
		zkl__scan_decide(scan, ZKL_NO_MEMORY, 0);
	if (scan->revokes && !scan->is_revoking)
	{
		zkl__scan_start_revoking(scan);
		go_on(scan);
	}
	if (is_through(scan))
		zkl__scan_decide(scan, ZKL_OK, 0);
}

/* Returns the head of the session's list of scans. */
static ZklScan **
scans_of(const ZklSession *session)
{
	return zkl__state(session, ZKL_PART_SCANS);
}

static void
on_drive(ZklSession *session)
{
	for (ZklScan *scan = *scans_of(session); scan; scan = scan->next)
		zkl__scan_drive(scan);
}


/*
 * Public functions
 */

static void
scan_free(ZklScan *scan)
{
	ZklScanItem *next_item;
	ZklPlace   *next_place;

	if (scan->prev)
		scan->prev->next = scan->next;
	else
		*scans_of(scan->session) = scan->next;
	if (scan->next)
		scan->next->prev = scan->prev;
	for (ZklScanItem *item = scan->items; item; item = next_item)
	{
		next_item = item->next;
		free(item->path);
		free(item->data);
		free(item);
	}
	for (ZklPlace *place = scan->places; place; place = next_place)
	{
		next_place = place->next;
		free(place->name);
		free(place);
	}
	free(scan->entries);
	free(scan);
}

/* Frees the scans that are ended and have no calls, or all scans. */
static void
sweep(ZklSession *session, bool all)
{
	ZklScan    *next;

	for (ZklScan *scan = *scans_of(session); scan; scan = next)
	{
		next = scan->next;
		if (all || (scan->ended && scan->uses.calls == 0))
			scan_free(scan);
	}
}

static void
on_sweep(ZklSession *session)
{
	sweep(session, false);
}

static void
on_free(ZklSession *session)
{
	sweep(session, true);
}

static void
on_idle(void *subject)
{
	const ZklScan *scan = subject;

	if (scan->ended)
		zkl__sweep_later(scan->session);
}

const ZklSessionPart zkl__scans_part = {
	.state_size = sizeof(ZklScan *),
	.on_drive = on_drive,
	.on_sweep = on_sweep,
	.on_free = on_free,
};

static ZklScan *
scan_new(ZklSession *session)
{
	ZklScan    *scan = calloc(1, sizeof(ZklScan));

	if (scan == NULL)
		return NULL;
	scan->session = session;
	scan->uses.on_idle = on_idle;
	scan->status = ZKL_PENDING;
	scan->todo_end = &scan->todo;
	scan->next = *scans_of(session);
	if (scan->next)
		scan->next->prev = scan;
	*scans_of(session) = scan;
	return scan;
}

/* Starts a scan: of everything (name NULL), of a name, or of a lock to revoke. */
static ZklScan *
start(ZklSession *session, const char *name, bool revokes, bool spares)
{
	ZklScan    *scan;

	zkl__session_lock(session);
	scan = scan_new(session);
	if (scan)
	{
		scan->revokes = revokes;
		scan->spares = spares;
		if (name == NULL)
			zkl__scan_begin(scan);
		else
			zkl__scan_begin_lock(scan, name);
		if (name && !revokes)
			zkl__scan_begin_semaphore(scan, name);
		zkl__scan_drive(scan);
	}
	zkl__session_unlock(session);
	return scan;
}

ZklScan *
zkl_scan_all(ZklSession *session)
{
	return start(session, NULL, false, false);
}

ZklScan *
zkl_scan_one(ZklSession *session, const char *name)
{
	return start(session, name, false, false);
}

ZklScan *
zkl_revoke(ZklSession *session, const char *name)
{
	return start(session, name, true, false);
}

ZklScan *
zkl_revoke_ordinary(ZklSession *session, const char *name)
{
	return start(session, name, true, true);
}

ZklStatus
zkl_scan_status(ZklScan *scan)
{
	ZklSession *session = scan->session;
	ZklStatus	status;

	zkl__session_lock(session);
	status = scan->status == ZKL_PENDING ? zkl__final_status(session) : scan->status;
	zkl__session_unlock(session);
	return status;
}

void
zkl_scan_info(ZklScan *scan, ZklScanInfo *info)
{
	zkl__session_lock(scan->session);
	info->entries = scan->entries;
	info->n_entries = scan->n_entries;
	info->n_denied = scan->n_denied;
	info->n_asked = scan->n_asked;
	info->n_spared = scan->n_spared;
	info->raw_code = scan->raw_code;
	zkl__session_unlock(scan->session);
}

void
zkl_scan_end(ZklScan *scan)
{
	ZklSession *session = scan->session;

	zkl__session_lock(session);
	if (scan->status == ZKL_PENDING)
		scan->status = ZKL_ABANDONED;
	scan->ended = true;
	zkl__sweep_later(session);
	zkl__session_unlock(session);
}
