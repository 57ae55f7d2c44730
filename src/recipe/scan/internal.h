/*-------------------------------------------------------------------------
 *
 * internal.h
 *		One scan and its items, shared by the files of this folder only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SCAN_INTERNAL_H
#define ZKL_SCAN_INTERNAL_H

#include "recipe/semaphore/semaphore_names.h"
#include "scan.h"

typedef struct ZklScanItem ZklScanItem;

/* A lock or semaphore.  One name may have several objects, one for each of its znodes. */
typedef struct ZklObject
{
	struct ZklObject *next;
	ZklKind		kind;
	char	   *name;			/* encoded */
	int			capacity;		/* capacity of a semaphore; 0: unknown */
} ZklObject;

/* The kinds of children of a znode, in the order of the result. */
typedef enum ZklRole
{
	ROLE_CONTENDER,				/* holder or waiter of a lock */
	ROLE_PERMIT,
	ROLE_WAITER					/* waiter for a permit */
} ZklRole;

typedef enum ZklItemKind
{
	ITEM_LOCKS,					/* list the locks */
	ITEM_SEMAPHORES,			/* list the semaphores */
	ITEM_QUEUE,					/* list nodes, all of the item's role */
	ITEM_SEMAPHORE,				/* list the children of a semaphore */
	ITEM_CAPACITY,				/* read the capacity of a semaphore */
	ITEM_NODE,					/* read the node of a holder or waiter */
	ITEM_REVOKE					/* write to the node of a holder */
} ZklItemKind;

/* One znode to list, read or write. */
struct ZklScanItem
{
	ZklScanItem *next;			/* in scan->items */
	ZklScanItem *next_unsent;	/* in scan->unsent */
	ZklItemKind kind;
	ZklRole		role;
	ZklObject  *object;
	char	   *path;
	const char *child;			/* NODE: last component of the path, once all is read */
	char	   *data;
	bool		is_measured;	/* NODE, CAPACITY: the data are short enough to be read */
	bool		is_seen;		/* NODE: it exists, and gets an entry of its own */
	int32_t		version;		/* of the data that were read */
	bool		is_unknown;		/* REVOKE: sent, and the answer was lost */
	bool		is_anchor;		/* anchor of a granted upgrade */
	ZklEntry	entry;
};

struct ZklScan
{
	ZklSession *session;
	ZklScanKind kind;
	ZklScan    *prev;			/* in the list of scan.c */
	ZklScan    *next;
	ZklStatus	status;
	int			raw_code;
	ZklUses		uses;
	bool		is_synced;		/* a list was read behind a sync */
	int			in_flight;		/* requests */
	bool		is_revoking;	/* all is read, and the releases are requested */
	ZklScanItem *items;
	int			n_items;
	ZklScanItem *unsent;		/* items to send, oldest first */
	ZklScanItem **unsent_end;
	ZklObject  *objects;
	int			n_denied;
	int			n_requested;
	int			n_spared;
	ZklEntry   *entries;
	int			n_entries;
};

/* scan_items.c */
extern void zkl__scan_decide(ZklScan *scan, ZklStatus status, int raw_code);
extern void zkl__scan_push(ZklScan *scan, ZklScanItem *item);
extern void zkl__scan_put_back(ZklScan *scan, ZklScanItem *item);
extern void zkl__scan_add(ZklScan *scan, ZklItemKind kind, ZklRole role,
						  ZklObject *object, const char *path, const char *child);
extern ZklObject *zkl__scan_add_object(ZklScan *scan, ZklKind kind, const char *name,
									   size_t length);
extern void zkl__scan_free_items(ZklScan *scan);

/* scan_queues.c */
extern void zkl__scan_begin(ZklScan *scan, const char *name);
extern void zkl__scan_follow(ZklScan *scan, ZklScanItem *item, const ZklResult *result);

/* scan_order.c */
extern bool zkl__scan_order(ZklScan *scan);

/* scan_requests.c */
extern bool zkl__scan_reads(const ZklScanItem *item);
extern void zkl__scan_send(ZklScan *scan, ZklHandler handler);

#endif							/* ZKL_SCAN_INTERNAL_H */
