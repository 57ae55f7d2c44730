/*-------------------------------------------------------------------------
 *
 * scan_batch.c
 *		Sends the reads for many items of a scan in one request.
 *
 * A server needs about as long for a request with a hundred reads as for a single
 * read.  So a scan of a hundred thousand idle names takes less than a second.  If such
 * a request fails as a whole (old server, TLS, an answer that is too long, or a lost
 * connection), the scan continues with one read in each request.
 *
 *-------------------------------------------------------------------------
 */
#include "scan.h"

#define MAX_BATCH 100

/* The call's items are linked by next_todo, from call->detail on. */
static void
on_batch_answered(ZklCall *call, const ZklResult *result)
{
	static const ZklResult lost = {.code = ZKL_RC_CONNECTION_LOSS};
	ZklScan    *scan = call->subject;
	bool		works = result->code != ZKL_RC_CONNECTION_LOSS &&
		result->code != ZKL_RC_UNIMPLEMENTED && result->code != ZKL_RC_NO_AUTH;
	bool		is_read_lost = false;
	ZklScanItem *next;
	int			i = 0;

	scan->in_flight--;
	if (scan->status != ZKL_PENDING)
		return;
	scan->one_by_one = scan->one_by_one || !works;
	for (ZklScanItem *item = call->detail; item; item = next, i++)
	{
		const ZklResult *own = i < result->n_ops ? &result->reads[i] : result;

		next = item->next_todo;
		is_read_lost = is_read_lost || own->code == ZKL_RC_CONNECTION_LOSS;
		zkl__scan_settle(scan, item, works ? own : &lost);
	}
	if (result->code == ZKL_RC_CONNECTION_LOSS)
		return;					/* driven again on the next connection */
	if (is_read_lost)
		zkl__retry_later(scan->session);
	else
		zkl__scan_drive(scan);
}

static ZklOpKind
op_kind(const ZklScanItem *item)
{
	return item->kind == ITEM_CAPACITY || item->kind == ITEM_NODE ? ZKL_OP_GET : ZKL_OP_LIST;
}

bool
zkl__scan_send_batch(ZklScan *scan)
{
	ZklOp		ops[MAX_BATCH] = {0};
	ZklScanItem *first = scan->todo;
	ZklScanItem *last = NULL;
	ZklCall    *call = zkl__scan_call(scan, on_batch_answered, first);
	int			n = 0;

	if (call == NULL)
		return false;
	while (n < MAX_BATCH && scan->todo)
	{
		last = zkl__scan_pop(scan);
		ops[n].kind = op_kind(last);
		ops[n++].path = last->path;
	}
	last->next_todo = NULL;
	call = zkl__call_sent(call, zkl_client_read_each(zkl__client(scan->session), ops, n,
													 &call->completion));
	if (call)
	{
		scan->in_flight++;
		return true;
	}
	for (ZklScanItem *item = first; item; item = last)
	{
		last = item->next_todo;
		zkl__scan_push_again(scan, item);
	}
	return false;
}
