/*-------------------------------------------------------------------------
 *
 * scan.h
 *		Scans of all queues, for the views and for revocation.
 *
 *		scan_items.c		the znodes that a scan has to list, read or write
 *		scan_queues.c		... which znode leads to which
 *		scan_order.c		... who holds and who waits
 *		scan_requests.c		... sending them, many in one request
 *		scan.c				one scan: handles the answers, chooses the nodes to revoke
 *
 * Each file calls only files above it in this list.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SCAN_H
#define ZKL_SCAN_H

#include "recipe/session/session.h"

extern const size_t zkl__scans_size;
extern void zkl__scans_drive(ZklSession *session);
extern void zkl__scans_free(ZklSession *session);

#endif							/* ZKL_SCAN_H */
