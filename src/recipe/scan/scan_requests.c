/*-------------------------------------------------------------------------
 *
 * scan_requests.c
 *		Sends the items of a scan.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "internal.h"

/* Requests in flight. */
#define WINDOW 100

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

/* Sends the first item; returns false if it was not sent. */
static bool
send_first(ZklScan *scan, ZklHandler handler)
{
	ZklScanItem *item = scan->unsent;
	ZklOp		op = op_of(item);
	ZklCall    *call = zkl__call_new(scan->session, handler, scan, &scan->uses);

	if (call)
		call->detail = item;
	call = scan->is_synced ? zkl__send(call, &op)
		: zkl__get_children(call, item->path, true, false);
	if (call == NULL)
		return false;
	scan->unsent = item->next_unsent;
	if (scan->unsent == NULL)
		scan->unsent_end = &scan->unsent;
	scan->in_flight++;
	return true;
}

/*
 * Sends as many requests as may be in flight.  The first item is a list, sent alone and
 * synced: all later reads are as new as that.
 */
void
zkl__scan_send(ZklScan *scan, ZklHandler handler)
{
	int			window = scan->is_synced ? WINDOW : 1;

	while (scan->unsent && scan->in_flight < window && send_first(scan, handler))
		;
}
