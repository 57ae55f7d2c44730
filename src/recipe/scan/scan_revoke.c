/*-------------------------------------------------------------------------
 *
 * scan_revoke.c
 *		Selects the nodes to which a scan writes to request their release.
 *
 * Sends nothing.  Called by scan.c when everything is read.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "internal.h"

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
void
zkl__scan_start_revoking(ZklScan *scan)
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
