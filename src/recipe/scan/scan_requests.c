/*-------------------------------------------------------------------------
 *
 * scan_requests.c
 *		Sends the items of a scan, many reads in one request.
 *
 * A server needs about as long for a request with a hundred reads as for a single
 * read.  So a scan of a hundred thousand idle names takes less than a second.  If such
 * a request fails as a whole (old server, TLS, an answer that is too long, or a lost
 * connection), the scan continues with one read in each request.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "internal.h"

/* Requests in flight: each for many items; each for one item. */
#define BATCHES 4
#define WINDOW 100

/* Items in one request. */
#define MAX_BATCH 100

static bool
is_read(const ZklScanItem *item)
{
	return item->kind == ITEM_CAPACITY || item->kind == ITEM_NODE;
}

static ZklOp
op_of(const ZklScanItem *item)
{
	if (item->kind == ITEM_REVOKE)
		return (ZklOp)
	{
		.kind = ZKL_OP_SET,.path = item->path,.data = ZKL_REVOKE_MESSAGE,
			.data_len = strlen(ZKL_REVOKE_MESSAGE),.version = item->version
	};
	return (ZklOp)
	{
		.kind = is_read(item) ? ZKL_OP_GET : ZKL_OP_LIST,.path = item->path
	};
}

/*
 * Sends at most "max" items in one request; returns false if it was not sent.  In
 * the call they are linked by next_unsent, from call->detail on.
 */
static bool
send_items(ZklScan *scan, int max, ZklHandler handler)
{
	ZklScanItem *first = scan->unsent;
	ZklScanItem *last = NULL;
	ZklCall    *call = zkl__call_new(scan->session, handler, scan, &scan->uses);
	ZklOp		ops[MAX_BATCH] = {0};
	int			n = 0;

	for (; n < max && scan->unsent; scan->unsent = last->next_unsent)
	{
		last = scan->unsent;
		ops[n++] = op_of(last);
	}
	last->next_unsent = NULL;
	if (scan->unsent == NULL)
		scan->unsent_end = &scan->unsent;
	if (call)
		call->detail = first;
	call = scan->is_synced ? zkl__send_all(call, n > 1 ? ZKL_READ_EACH : ZKL_SINGLE, ops, n)
		: zkl__get_children(call, first->path, true, false);
	if (call)
		scan->in_flight++;
	else
		zkl__scan_put_back(scan, first, last);
	return call != NULL;
}

/*
 * Sends as many requests as may be in flight.  The first item is a list, sent alone and
 * synced: all later reads are as new as that.
 */
void
zkl__scan_send(ZklScan *scan, ZklHandler handler)
{
	bool		alone = !scan->is_synced || scan->one_by_one || scan->is_revoking;
	int			window = !scan->is_synced ? 1 : alone ? WINDOW : BATCHES;

	while (scan->unsent && scan->in_flight < window)
		if (!send_items(scan, alone ? 1 : MAX_BATCH, handler))
			return;
}
