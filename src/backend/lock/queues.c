/*-------------------------------------------------------------------------
 *
 * queues.c
 *		Reads the queues of the ensemble, with the nodes of all programs.
 *
 * In nested loops: some hundred locks or semaphores at a time, their nodes, and what is in
 * them.  The holders and waiters follow from that.  A znode that does not exist any more is
 * left out.  Other programs' znodes may have any name and any data, in any number.  So the
 * length of data is read first, and what is kept at one time is bounded.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "backend/lock/queues.h"

/* Longer data are not read; those of all recipes are shorter. */
#define MAX_DATA 4096

/* The most nodes of locks or semaphores that are read at a time: about 300 megabytes. */
#define MAX_NODES 1000000

/* Locks or semaphores that are read at a time: each has at most two lists. */
#define MAX_OBJECTS (ZKLOCK_READ_BATCH / 2)

/* The kinds of znodes to read. */
typedef enum Role
{
	ROLE_CONTENDER,				/* holder or waiter of a lock */
	ROLE_WAITER,				/* waiter for a permit */
	ROLE_PERMIT,
	ROLE_CAPACITY				/* the znode of the semaphore */
} Role;

typedef struct Znode
{
	ZklockEntry entry;
	Role		role;
	int			object;			/* index of its lock or semaphore */
	const char *child;			/* last component of the path */
	bool		exists;
	int			length;			/* of the data */
} Znode;

/* The read of some locks or semaphores. */
typedef struct Scan
{
	ZklockReader *reader;
	ZklockUseEntry use;
	void	   *arg;
	int		   *n_denied;
	bool		is_semaphore;	/* else locks */
	const char *parent;			/* of the locks or semaphores */
	const char *const *names;
	int			n_names;
	Znode	   *nodes;			/* by object */
	int			n_nodes;
	int			max_nodes;
} Scan;


/*
 * Lists
 */

static void
add_node(Scan *scan, int object, Role role, const char *path)
{
	if (scan->n_nodes == MAX_NODES)
		zklock_fail(scan->reader->action, zklock_too_many_znodes);
	if (scan->n_nodes == scan->max_nodes)
	{
		scan->max_nodes = Max(2 * scan->max_nodes, 64);
		scan->nodes = scan->nodes ? repalloc(scan->nodes, scan->max_nodes * sizeof(Znode))
			: palloc(scan->max_nodes * sizeof(Znode));
	}
	scan->nodes[scan->n_nodes++] = (Znode)
	{
		.entry =
		{
			.is_semaphore = scan->is_semaphore,
				.name = scan->names[object],
				.path = path,
		},
			.role = role,
			.object = object,
			.child = strrchr(path, '/') + 1,
	};
}

/* Adds the nodes in a list. */
static void
add_children(Scan *scan, int object, Role role, const char *path, const ZklResult *list)
{
	if (!zklock_read_found(scan->reader, list->code, scan->n_denied))
		return;
	for (int i = 0; i < list->n_children; i++)
		if (role == ROLE_PERMIT || zkl_is_contender(list->children[i]))
			add_node(scan, object, role, psprintf("%s/%s", path, list->children[i]));
}

static ZklOp
list_op(const char *path)
{
	return (ZklOp)
	{
		.kind = ZKL_OP_LIST,.path = path
	};
}

/*
 * Lists the nodes of each lock or semaphore.  In Curator's layout <semaphore>/leases has the
 * permits of a semaphore, and <semaphore>/locks is its queue.
 */
static bool
list_objects(Scan *scan)
{
	static const Role lock_roles[] = {ROLE_CONTENDER};
	static const Role semaphore_roles[] = {ROLE_PERMIT, ROLE_WAITER};
	const Role *roles = scan->is_semaphore ? semaphore_roles : lock_roles;
	int			n_lists = scan->is_semaphore ? 2 : 1;
	ZklOp	   *ops = palloc(n_lists * scan->n_names * sizeof(ZklOp));
	const ZklResult *results;

	for (int i = 0; i < n_lists * scan->n_names; i++)
		ops[i] = list_op(psprintf("%s/%s%s", scan->parent, scan->names[i / n_lists],
								  !scan->is_semaphore ? "" : i % n_lists == 0 ? "/leases" : "/locks"));
	results = zklock_read_batch(scan->reader, ops, n_lists * scan->n_names);
	for (int i = 0; results && i < n_lists * scan->n_names; i++)
	{
		int			object = i / n_lists;

		if (scan->is_semaphore && i % n_lists == 0)
			add_node(scan, object, ROLE_CAPACITY,
					 psprintf("%s/%s", scan->parent, scan->names[object]));
		add_children(scan, object, roles[i % n_lists], ops[i].path, &results[i]);
	}
	return results != NULL;
}

/*
 * Nodes
 */

/* Takes the Stat of a node, or its data. */
static void
take_node(Scan *scan, Znode *node, const ZklResult *result)
{
	ZklockEntry *entry = &node->entry;
	int			ignored = 0;

	node->exists = result->code != ZKL_RC_NO_NODE;
	entry->is_readable = zklock_read_found(scan->reader, result->code,
										   node->role == ROLE_CAPACITY ? &ignored : scan->n_denied);
	entry->maker = zkl_maker(node->child, entry->is_readable ? result->owner : entry->session_id);
	if (!entry->is_readable)
		return;
	node->length = result->data_len;
	entry->token = result->czxid;
	entry->session_id = result->owner;
	entry->ctime_ms = result->ctime_ms;
	if (result->data && result->data_len > 0)
	{
		entry->data_len = result->data_len;
		entry->data = memcpy(palloc(result->data_len), result->data, result->data_len);
	}
}

static bool
has_data_to_read(const Znode *node)
{
	return node->exists && node->entry.is_readable &&
		node->length > 0 && node->length <= MAX_DATA;
}

/* Reads the data of the nodes whose length is known. */
static bool
read_data(Scan *scan, Znode *nodes, int n_nodes)
{
	ZklOp		ops[ZKLOCK_READ_BATCH];
	Znode	   *of_op[ZKLOCK_READ_BATCH];
	const ZklResult *results;
	int			n = 0;

	for (int i = 0; i < n_nodes; i++)
		if (has_data_to_read(&nodes[i]))
		{
			of_op[n] = &nodes[i];
			ops[n++] = (ZklOp)
			{
				.kind = ZKL_OP_GET,.path = nodes[i].entry.path,.data_len = nodes[i].length
			};
		}
	results = n > 0 ? zklock_read_batch(scan->reader, ops, n) : NULL;
	for (int i = 0; results && i < n; i++)
		take_node(scan, of_op[i], &results[i]);
	return n == 0 || results != NULL;
}

static bool
read_nodes(Scan *scan)
{
	ZklOp		ops[ZKLOCK_READ_BATCH];

	for (int from = 0, n; from < scan->n_nodes; from += n)
	{
		Znode	   *nodes = scan->nodes + from;
		const ZklResult *results;

		n = Min(scan->n_nodes - from, ZKLOCK_READ_BATCH);
		for (int i = 0; i < n; i++)
			ops[i] = (ZklOp)
		{
			.kind = ZKL_OP_STAT,.path = nodes[i].entry.path
		};
		results = zklock_read_batch(scan->reader, ops, n);
		for (int i = 0; results && i < n; i++)
			take_node(scan, &nodes[i], &results[i]);
		if (results == NULL || !read_data(scan, nodes, n))
			return false;
	}
	return true;
}


/*
 * Holders and waiters
 */

/* Sets mode and place of the existing nodes in a queue; returns their number, in order. */
static int
order_queue(Scan *scan, Znode *nodes, int n_nodes, Znode **ordered)
{
	const char **children = palloc((n_nodes + 1) * sizeof(char *));
	Znode	  **existing = palloc((n_nodes + 1) * sizeof(Znode *));
	ZklPlace   *places = palloc((n_nodes + 1) * sizeof(ZklPlace));
	int			n = 0;

	for (int i = 0; i < n_nodes; i++)
		if (nodes[i].exists)
		{
			children[n] = nodes[i].child;
			existing[n++] = &nodes[i];
		}
	n = zkl_order_queue(children, n, places);
	if (n < 0)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	for (int i = 0; i < n; i++)
	{
		ordered[i] = existing[places[i].index];
		ordered[i]->entry.mode = places[i].mode;
		ordered[i]->entry.position = places[i].position;
	}
	for (int i = 0; i < n; i++)
		if (places[i].anchor >= 0)
		{
			ZklockEntry *anchor = &existing[places[i].anchor]->entry;

			ordered[i]->entry.token = anchor->token;
			anchor->is_anchor = anchor->is_anchor || places[i].position == 0;
		}
	return n;
}

static void
use_all(Scan *scan, Znode **nodes, int n)
{
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		scan->use(&nodes[i]->entry, scan->arg);
	}
}

static void
use_lock(Scan *scan, Znode *nodes, int n_nodes)
{
	Znode	  **ordered = palloc((n_nodes + 1) * sizeof(Znode *));

	use_all(scan, ordered, order_queue(scan, nodes, n_nodes, ordered));
}

/* Sorts permits by age. */
static int
compare_permits(const void *a, const void *b)
{
	const Znode *x = *(Znode *const *) a;
	const Znode *y = *(Znode *const *) b;

	if (x->entry.token != y->entry.token)
		return x->entry.token < y->entry.token ? -1 : 1;
	return strcmp(x->entry.path, y->entry.path);
}

/*
 * The first waiter creates its permit node at once and then waits until there are not too
 * many.  If the capacity is unknown, the last permit node is taken for such a node if its
 * session is also the first waiter.  The two nodes become one entry of a waiter.  Returns
 * whether the first waiter has such a node.
 */
static bool
place_permits(Znode **permits, int n, int capacity, const Znode *first, int *n_waiting)
{
	bool		has_own = false;

	for (int i = 0; i < n; i++)
	{
		ZklockEntry *entry = &permits[i]->entry;
		bool		is_own = first && entry->session_id != 0 &&
			entry->session_id == first->entry.session_id;

		if (capacity > 0 ? i < capacity : i < n - 1 || !is_own)
			continue;
		entry->position = ++*n_waiting;
		has_own |= is_own;
	}
	return has_own;
}

/* The nodes of a semaphore are its own, then the permits, then the waiters. */
static void
use_semaphore(Scan *scan, Znode *nodes, int n_nodes)
{
	Znode	  **permits = palloc(n_nodes * sizeof(Znode *));
	Znode	  **waiters = palloc(n_nodes * sizeof(Znode *));
	int			n_permits = 0;
	int			n_waiters;
	int			n_waiting = 0;
	int			capacity = 0;
	int			i;

	if (nodes[0].entry.data)
		(void) zkl_parse_capacity(nodes[0].entry.data, nodes[0].entry.data_len, &capacity);
	for (i = 1; i < n_nodes && nodes[i].role == ROLE_PERMIT; i++)
		if (nodes[i].exists)
			permits[n_permits++] = &nodes[i];
	qsort(permits, n_permits, sizeof(Znode *), compare_permits);
	n_waiters = order_queue(scan, nodes + i, n_nodes - i, waiters);
	if (place_permits(permits, n_permits, capacity, n_waiters > 0 ? waiters[0] : NULL, &n_waiting))
	{
		waiters++;
		n_waiters--;
	}
	for (i = 0; i < n_waiters; i++)
	{
		waiters[i]->entry.mode = ZKL_MODE_NONE;
		waiters[i]->entry.position = ++n_waiting;
	}
	use_all(scan, permits, n_permits);
	use_all(scan, waiters, n_waiters);
}

static void
use_objects(Scan *scan)
{
	for (int from = 0, to; from < scan->n_nodes; from = to)
	{
		to = from;
		while (to < scan->n_nodes && scan->nodes[to].object == scan->nodes[from].object)
			to++;
		if (scan->is_semaphore)
			use_semaphore(scan, scan->nodes + from, to - from);
		else
			use_lock(scan, scan->nodes + from, to - from);
	}
}


/*
 * Locks and semaphores
 */

/* Reads the locks or semaphores of "names", some at a time. */
static bool
read_objects(Scan *scan, const char *const *names, int n_names)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "zklock queues",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	bool		is_read = true;

	for (int from = 0; is_read && from < n_names; from += MAX_OBJECTS)
	{
		scan->names = names + from;
		scan->n_names = Min(n_names - from, MAX_OBJECTS);
		scan->nodes = NULL;
		scan->n_nodes = 0;
		scan->max_nodes = 0;
		is_read = list_objects(scan) && read_nodes(scan);
		if (is_read)
			use_objects(scan);
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return is_read;
}

static Scan
scan_of(ZklockReader *reader, bool is_semaphore, ZklockUseEntry use, void *arg, int *n_denied)
{
	return (Scan)
	{
		.reader = reader,
			.use = use,
			.arg = arg,
			.n_denied = n_denied,
			.is_semaphore = is_semaphore,
			.parent = psprintf("%s/%s", zkl_session_root(reader->session),
							   is_semaphore ? "semaphores" : "locks"),
	};
}

bool
zklock_read_lock(ZklockReader *reader, const char *name,
				 ZklockUseEntry use, void *arg, int *n_denied)
{
	Scan		scan = scan_of(reader, false, use, arg, n_denied);

	return read_objects(&scan, &name, 1);
}

bool
zklock_read_semaphore(ZklockReader *reader, const char *name,
					  ZklockUseEntry use, void *arg, int *n_denied)
{
	Scan		scan = scan_of(reader, true, use, arg, n_denied);

	return read_objects(&scan, &name, 1);
}

static int
compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *) a, *(const char *const *) b);
}

/* Reads all locks or all semaphores. */
static bool
read_below(Scan *scan)
{
	ZklOp		op = list_op(scan->parent);
	const ZklResult *list = zklock_read_batch(scan->reader, &op, 1);
	const char **names;
	int			n = 0;

	if (list == NULL)
		return false;
	if (!zklock_read_found(scan->reader, list->code, scan->n_denied))
		return true;
	if (list->n_children > MAX_NODES)
		zklock_fail(scan->reader->action, zklock_too_many_znodes);
	names = palloc((list->n_children + 1) * sizeof(char *));
	for (n = 0; n < list->n_children; n++)
		names[n] = pstrdup(list->children[n]);
	qsort(names, n, sizeof(char *), compare_names);
	return read_objects(scan, names, n);
}

bool
zklock_read_all(ZklockReader *reader, ZklockUseEntry use, void *arg, int *n_denied)
{
	Scan		locks = scan_of(reader, false, use, arg, n_denied);
	Scan		semaphores = scan_of(reader, true, use, arg, n_denied);

	return read_below(&locks) && read_below(&semaphores);
}
