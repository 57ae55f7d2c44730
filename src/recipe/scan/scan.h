/*-------------------------------------------------------------------------
 *
 * scan.h
 *		Scans of all queues, for the views and for revocation.
 *
 *		scan.c				one scan: sends the reads, handles the answers
 *		scan_batch.c		... many reads in one request
 *		scan_queues.c		... which znode leads to which
 *		scan_order.c		... who holds and who waits
 *		scan_revoke.c		... which nodes a revocation writes to
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SCAN_H
#define ZKL_SCAN_H

#include "recipe/semaphore/semaphore_names.h"
#include "recipe/session/session.h"

typedef struct ZklScanItem ZklScanItem;

/* A lock or semaphore.  One name may have several places, one for each of its znodes. */
typedef struct ZklPlace
{
	struct ZklPlace *next;
	ZklKind		kind;
	char	   *name;			/* encoded */
	int			capacity;		/* capacity of a semaphore; 0: unknown */
} ZklPlace;

/* What the children of a znode are, in the order of the result. */
typedef enum ZklRole
{
	ROLE_CONTENDER,				/* holder or waiter of a lock */
	ROLE_PERMIT,				/* permit, Curator's layout */
	ROLE_KAZOO_PERMIT,			/* permit, kazoo's layout */
	ROLE_WAITER,				/* waiter for a permit, Curator's layout */
	ROLE_KAZOO_WAITER			/* waiter for a permit, kazoo's layout */
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
	ZklScanItem *next_todo;		/* in scan->todo, or in a batch */
	ZklItemKind kind;
	ZklRole		role;
	ZklPlace   *place;
	char	   *path;
	char	   *data;
	bool		is_seen;		/* NODE: it exists, and gets an entry of its own */
	int32_t		version;		/* of the data that were read */
	bool		is_unknown;		/* REVOKE: sent, and the answer was lost */
	bool		is_anchor;		/* anchor of a granted upgrade */
	ZklEntry	entry;
};

struct ZklScan
{
	ZklSession *session;
	ZklScan    *prev;			/* in the list of scan.c */
	ZklScan    *next;
	ZklStatus	status;
	int			raw_code;
	bool		ended;			/* the owner has ended it; freed with its last call */
	ZklUses		uses;
	bool		is_synced;		/* a list was read behind a sync */
	int			in_flight;		/* requests */
	bool		one_by_one;		/* requests for several items do not work */
	bool		revokes;		/* request a release from the holders */
	bool		is_revoking;	/* all is read, and these requests are sent */
	bool		spares;			/* ... except from sessions of superusers */
	ZklScanItem *items;
	int			n_items;
	ZklScanItem *todo;			/* items to send, oldest first */
	ZklScanItem **todo_end;
	ZklPlace   *places;
	int			n_denied;
	int			n_asked;
	int			n_spared;
	ZklEntry   *entries;
	int			n_entries;
};

extern const ZklSessionPart zkl__scans_part;

extern void zkl__scan_drive(ZklScan *scan);

/* scan.c: ends the scan with a status, unless it has ended already. */
extern void zkl__scan_decide(ZklScan *scan, ZklStatus status, int raw_code);

/* ... adds an item for the child of a path, or for the path itself if child is NULL. */
extern void zkl__scan_add(ZklScan *scan, ZklItemKind kind, ZklRole role,
						  ZklPlace *place, const char *path, const char *child);

/* ... appends an item to scan->todo. */
extern void zkl__scan_push(ZklScan *scan, ZklScanItem *item);

/* ... takes the first item of scan->todo, which must not be empty; puts it back there. */
extern ZklScanItem *zkl__scan_pop(ZklScan *scan);
extern void zkl__scan_push_again(ZklScan *scan, ZklScanItem *item);

/* ... returns a new call for an item, or for several; NULL if out of memory. */
extern ZklCall *zkl__scan_call(ZklScan *scan, ZklHandler handler, ZklScanItem *item);

/* ... handles the result for one item. */
extern void zkl__scan_settle(ZklScan *scan, ZklScanItem *item,
							 const ZklResult *result);

/* scan_revoke.c: starts writing to the holders' nodes, after everything is read. */
extern void zkl__scan_start_revoking(ZklScan *scan);

/* scan_batch.c: sends the next items in one request; false if it was not sent. */
extern bool zkl__scan_send_batch(ZklScan *scan);

/* scan_queues.c: adds the first items: for everything, */
extern void zkl__scan_begin(ZklScan *scan);

/* ... for the lock of a name, or for the semaphore of a name. */
extern void zkl__scan_begin_lock(ZklScan *scan, const char *name);
extern void zkl__scan_begin_semaphore(ZklScan *scan, const char *name);

/* ... adds the items that follow from an answer. */
extern void zkl__scan_follow(ZklScan *scan, ZklScanItem *item,
							 const ZklResult *result);

/* scan_order.c: decides which nodes hold, and makes the entries; false: no memory. */
extern bool zkl__scan_order(ZklScan *scan);

#endif							/* ZKL_SCAN_H */
