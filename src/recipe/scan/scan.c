/*-------------------------------------------------------------------------
 *
 * scan.c
 *		Reads all queues, including the nodes of other programs.
 *
 * Each znode to list or read is an item, and each list adds items for the children
 * (scan_queues.c).  The number of requests in flight is bounded (scan_requests.c).  If an
 * answer is lost, its item returns to scan->unsent and is sent again after reconnecting or
 * by the session's retry timer.
 *
 * A znode that does not exist any more is left out.  A znode that may not be read is
 * counted.  The data of a znode are read after their length.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Longer data are not read; those of all recipes are shorter. */
#define MAX_DATA 4096


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

/* Nodes of other programs may have a megabyte each. */
static void
measured(ZklScan *scan, ZklScanItem *item, const ZklResult *result)
{
	item->is_measured = result->data_len > 0 && result->data_len <= MAX_DATA;
	if (item->is_measured)
		zkl__scan_push(scan, item);
	else if (item->kind == ITEM_NODE)
		node_read(scan, item, result);
}

static void
item_answered(ZklScan *scan, ZklScanItem *item, const ZklResult *result)
{
	if (zkl__scan_reads(item) && !item->is_measured)
		measured(scan, item, result);
	else if (item->kind == ITEM_NODE)
		node_read(scan, item, result);
	else if (item->kind == ITEM_REVOKE)
		scan->n_requested++;
	else
		zkl__scan_follow(scan, item, result);
}

/* Handles the answer for an item. */
static void
settle(ZklScan *scan, ZklScanItem *item, const ZklResult *result)
{
	switch (result->code)
	{
		case ZKL_RC_OK:
			item_answered(scan, item, result);
			break;
		case ZKL_RC_NO_NODE:
			/* A holder may have released because of a write whose answer was lost. */
			scan->n_requested += item->is_unknown;
			break;
		case ZKL_RC_BAD_VERSION:
			/* After a lost answer: the write or the holder's restore has changed it. */
			if (item->is_unknown)
				scan->n_requested++;
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
			zkl__scan_put_back(scan, item);
			break;
		default:
			zkl__scan_decide(scan, zkl__status_of(result->code), result->raw_code);
	}
}

static void drive(ZklScan *scan);

static void
on_answered(ZklCall *call, const ZklResult *result)
{
	ZklScan    *scan = call->subject;

	scan->in_flight--;
	if (scan->status != ZKL_PENDING)
		return;
	scan->is_synced = scan->is_synced || result->code != ZKL_RC_CONNECTION_LOSS;
	settle(scan, call->detail, result);
	if (result->code != ZKL_RC_CONNECTION_LOSS)
		drive(scan);			/* else on the next connection, or by the retry timer */
}


/*
 * Driving
 */

static bool
begins_with(const ZklEntry *entry, const char *text)
{
	int			length = (int) strlen(text);

	return entry->data_len >= length && memcmp(entry->data, text, length) == 0;
}

/* Returns whether nothing is to be sent to a holder, and counts the holder then. */
static bool
is_left_alone(ZklScan *scan, const ZklEntry *entry)
{
	if (scan->kind != ZKL_REVOKE_ORDINARY)
		return false;
	if (begins_with(entry, ZKL_SUPERUSER_DATA))
		scan->n_spared++;
	else if (entry->data_len == (int) strlen(ZKL_REVOKE_MESSAGE) &&
			 begins_with(entry, ZKL_REVOKE_MESSAGE))
		scan->n_requested++;
	else
		return false;
	return true;
}

/*
 * Has one node of each holder written to: of an upgrade the writer node, not its
 * anchor.  A write whose answer was lost is repeated only for an unchanged node.
 */
static void
start_revoking(ZklScan *scan)
{
	scan->is_revoking = true;
	for (ZklScanItem *item = scan->items; item; item = item->next)
		if (item->kind == ITEM_NODE && item->is_seen && item->entry.position == 0 &&
			!item->is_anchor && !is_left_alone(scan, &item->entry))
		{
			item->kind = ITEM_REVOKE;
			zkl__scan_push(scan, item);
		}
}

static bool
is_through(const ZklScan *scan)
{
	return scan->status == ZKL_PENDING && scan->is_synced &&
		scan->unsent == NULL && scan->in_flight == 0;
}

/* Sends as many requests as may be in flight; ends the scan when nothing is left. */
static void
drive(ZklScan *scan)
{
	if (scan->status != ZKL_PENDING || !zkl__is_connected(scan->session))
		return;
	zkl__scan_send(scan, on_answered);
	if (!is_through(scan))
		return;
	if (!scan->is_revoking && !zkl__scan_order(scan))
		zkl__scan_decide(scan, ZKL_NO_MEMORY, 0);
	else if (scan->kind != ZKL_SCAN && !scan->is_revoking)
	{
		start_revoking(scan);
		zkl__scan_send(scan, on_answered);
	}
	if (is_through(scan))
		zkl__scan_decide(scan, ZKL_OK, 0);
}

/* Returns the head of the session's list of scans. */
static ZklScan **
scans_of(const ZklSession *session)
{
	return zkl__state(session, ZKL_STATE_SCANS);
}

void
zkl__scans_drive(ZklSession *session)
{
	for (ZklScan *scan = *scans_of(session); scan; scan = scan->next)
		drive(scan);
}


/*
 * Public functions
 */

static void
scan_free(void *subject)
{
	ZklScan    *scan = subject;

	if (scan->prev)
		scan->prev->next = scan->next;
	else
		*scans_of(scan->session) = scan->next;
	if (scan->next)
		scan->next->prev = scan->prev;
	zkl__scan_free_items(scan);
	free(scan->entries);
	free(scan);
}

void
zkl__scans_free(ZklSession *session)
{
	while (*scans_of(session))
		scan_free(*scans_of(session));
}

const size_t zkl__scans_size = sizeof(ZklScan *);

static ZklScan *
scan_new(ZklSession *session, ZklScanKind kind)
{
	ZklScan    *scan = calloc(1, sizeof(ZklScan));

	if (scan == NULL)
		return NULL;
	scan->session = session;
	scan->kind = kind;
	scan->uses.subject = scan;
	scan->uses.free_subject = scan_free;
	scan->status = ZKL_PENDING;
	scan->unsent_end = &scan->unsent;
	scan->next = *scans_of(session);
	if (scan->next)
		scan->next->prev = scan;
	*scans_of(session) = scan;
	return scan;
}

ZklScan *
zkl_scan(ZklSession *session, ZklScanKind kind, const char *name)
{
	ZklScan    *scan;

	zkl__session_lock(session);
	scan = scan_new(session, kind);
	if (scan)
	{
		zkl__scan_begin(scan, name);
		drive(scan);
	}
	zkl__session_unlock(session);
	return scan;
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
	info->n_requested = scan->n_requested;
	info->n_spared = scan->n_spared;
	info->raw_code = scan->raw_code;
	info->progress = scan->uses.progress;
	zkl__session_unlock(scan->session);
}

void
zkl_scan_end(ZklScan *scan)
{
	ZklSession *session = scan->session;

	zkl__session_lock(session);
	if (scan->status == ZKL_PENDING)
		scan->status = ZKL_ABANDONED;
	zkl__uses_end(session, &scan->uses);
	zkl__session_unlock(session);
}
