/*-------------------------------------------------------------------------
 *
 * queues.c
 *		Reads the queues of the ensemble, with the nodes of all programs.
 *
 * In nested loops: some hundred locks or semaphores at a time, the Stats of their nodes; then
 * the data of the nodes, of some locks or semaphores at a time.  The holders and waiters follow
 * from that.  A znode that does not exist any more is left out.
 *
 * Other programs' znodes may have any name and any data, in any number.  So what is kept at one
 * time is bounded, in two halves: the nodes with their Stats, in "memory", and their data, in
 * "data_memory".  If the nodes of some locks are too many, fewer locks are read at a time; those
 * of a single lock are then an error.  The length of data is known from the Stat, so that the
 * data of as many locks are read as fit; if those of a single lock do not fit, the rest is shown
 * as longer data are, as if there were none.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "backend/lock/znodes.h"
#include "backend/session/errors.h"
#include "recipe/batch.h"
#include "recipe/recipe.h"

/* Longer data are not read; those of all recipes are shorter. */
#define MAX_DATA 4096

/* The most names of locks or semaphores. */
#define MAX_NAMES 1000000

/* The most memory for nodes, and the most for data.  The reference gives the sum. */
#define MAX_MEMORY (32 * 1024 * 1024)

/* Locks or semaphores that are read at a time: each has at most two lists. */
#define MAX_OBJECTS (ZKLOCK_READ_BATCH / 2)

typedef enum Role
{
	ROLE_CONTENDER,				/* in the queue of a lock or semaphore */
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

/* A list of nodes, as the path below the lock or semaphore. */
typedef struct Place
{
	const char *path;
	Role		role;
} Place;

/* In Curator's layout "locks" is the queue of a semaphore. */
static const Place lock_places[] = {{"", ROLE_CONTENDER}};
static const Place semaphore_places[] = {{"/leases", ROLE_PERMIT}, {"/locks", ROLE_CONTENDER}};

/* The read of some locks or semaphores. */
typedef struct Scan
{
	ZklockReader *reader;
	ZklockUseEntry use;
	void	   *arg;
	bool		is_semaphore;	/* else locks */
	const char *parent;			/* of the locks or semaphores */
	const char *const *names;
	int			n_names;
	MemoryContext memory;
	MemoryContext data_memory;
	bool		overflows;		/* not all nodes are in the array */
	Znode	   *nodes;			/* by object */
	int			n_nodes;
	int			max_nodes;
} Scan;

static bool
is_full(MemoryContext memory)
{
	return MemoryContextMemAllocated(memory, false) >= MAX_MEMORY;
}


/*
 * Lists
 */

static void
add_node(Scan *scan, int object, Role role, const char *path)
{
	scan->overflows |= is_full(scan->memory);
	if (scan->overflows)
		return;
	if (scan->n_nodes == scan->max_nodes)
	{
		scan->max_nodes *= 2;
		scan->nodes = repalloc(scan->nodes, scan->max_nodes * sizeof(Znode));
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
	if (!zklock_read_found(scan->reader, list->code))
		return;
	for (int i = 0; i < list->n_children && !scan->overflows; i++)
		if (role == ROLE_PERMIT || zkl_is_contender(list->children[i]))
			add_node(scan, object, role, psprintf("%s/%s", path, list->children[i]));
}

/* Lists the nodes of each lock or semaphore. */
static bool
list_objects(Scan *scan)
{
	const Place *places = scan->is_semaphore ? semaphore_places : lock_places;
	int			n_places = scan->is_semaphore ? lengthof(semaphore_places) : lengthof(lock_places);
	int			n = n_places * scan->n_names;
	ZklOp	   *ops = palloc0(n * sizeof(ZklOp));
	const ZklResult *results;

	for (int i = 0; i < n; i++)
	{
		ops[i].kind = ZKL_OP_LIST;
		ops[i].path = psprintf("%s/%s%s", scan->parent, scan->names[i / n_places],
							   places[i % n_places].path);
	}
	results = zklock_read_batch(scan->reader, ops, n);
	for (int i = 0; results && i < n; i++)
	{
		int			object = i / n_places;

		if (scan->is_semaphore && i % n_places == 0)
			add_node(scan, object, ROLE_CAPACITY,
					 psprintf("%s/%s", scan->parent, scan->names[object]));
		add_children(scan, object, places[i % n_places].role, ops[i].path, &results[i]);
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

	node->exists = result->code != ZKL_RC_NO_NODE;
	entry->is_readable = zklock_read_found(scan->reader, result->code);
	entry->maker = zkl_maker(node->child, entry->is_readable ? result->owner : entry->session_id);
	if (!entry->is_readable)
		return;
	node->length = result->data_len;
	entry->token = result->czxid;
	entry->session_id = result->owner;
	entry->ctime_ms = result->ctime_ms;

	/* They may have become longer since their length was read. */
	if (result->data && result->data_len > 0 && result->data_len <= MAX_DATA)
	{
		entry->data_len = result->data_len;
		entry->data = memcpy(MemoryContextAlloc(scan->data_memory, result->data_len),
							 result->data, result->data_len);
	}
}

static bool
has_data(const Znode *node)
{
	return node->entry.is_readable && node->length > 0 && node->length <= MAX_DATA;
}

/* Reads the Stat of these nodes; or the data of those whose length is known. */
static bool
read_batch(Scan *scan, ZklOpKind kind, Znode *nodes, int n_nodes)
{
	ZklOp	   *ops = palloc0(n_nodes * sizeof(ZklOp));
	Znode	  **of_op = palloc(n_nodes * sizeof(Znode *));
	const ZklResult *results = NULL;
	int			n = 0;

	for (int i = 0; i < n_nodes; i++)
	{
		const Znode *node = &nodes[i];

		if (kind == ZKL_OP_GET && !has_data(node))
			continue;
		of_op[n] = &nodes[i];
		ops[n].kind = kind;
		ops[n++].path = node->entry.path;
	}
	if (n > 0)
		results = zklock_read_batch(scan->reader, ops, n);
	for (int i = 0; results && i < n; i++)
		take_node(scan, of_op[i], &results[i]);
	pfree(ops);
	pfree(of_op);
	return n == 0 || results != NULL;
}

static bool
read_nodes(Scan *scan, ZklOpKind kind, Znode *nodes, int n_nodes)
{
	for (int from = 0; from < n_nodes; from += ZKLOCK_READ_BATCH)
	{
		if (kind == ZKL_OP_GET && is_full(scan->data_memory))
			return true;
		if (!read_batch(scan, kind, nodes + from, Min(n_nodes - from, ZKLOCK_READ_BATCH)))
			return false;
	}
	return true;
}


/*
 * Holders and waiters
 */

/* Sorts the nodes of a queue, and sets their mode and place. */
static void
order_queue(Znode **queue, int n)
{
	const char **children = palloc((n + 1) * sizeof(char *));
	Znode	  **nodes = palloc((n + 1) * sizeof(Znode *));
	ZklPlace   *places = palloc((n + 1) * sizeof(ZklPlace));

	for (int i = 0; i < n; i++)
	{
		nodes[i] = queue[i];
		children[i] = queue[i]->child;
	}
	if (zkl_order_queue(children, n, places) < 0)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	for (int i = 0; i < n; i++)
	{
		queue[i] = nodes[places[i].index];
		queue[i]->entry.mode = places[i].mode;
		queue[i]->entry.position = places[i].position;
	}
	for (int i = 0; i < n; i++)
		if (places[i].anchor >= 0)
		{
			ZklockEntry *anchor = &nodes[places[i].anchor]->entry;

			queue[i]->entry.token = anchor->token;
			anchor->is_anchor = anchor->is_anchor || places[i].position == 0;
		}
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
 * Sets the places of a semaphore's permits, and of the waiters behind them.  The first waiter
 * creates its permit node at once and then waits until there are not too many.  If the capacity
 * is unknown, the last permit node is taken for such a node if its session is also the first
 * waiter.  The two nodes become one entry of a waiter.  Returns whether the first waiter has
 * such a node.
 */
static bool
place_semaphore(Znode **permits, int n_permits, Znode **queue, int n_queue, int capacity)
{
	bool		has_own = false;
	int			n_waiting = 0;

	qsort(permits, n_permits, sizeof(Znode *), compare_permits);
	for (int i = 0; i < n_permits; i++)
	{
		ZklockEntry *entry = &permits[i]->entry;
		bool		is_own = n_queue > 0 && entry->session_id != 0 &&
			entry->session_id == queue[0]->entry.session_id;

		if (capacity > 0 ? i < capacity : i < n_permits - 1 || !is_own)
			continue;
		entry->position = ++n_waiting;
		has_own |= is_own;
	}
	for (int i = has_own; i < n_queue; i++)
	{
		queue[i]->entry.mode = ZKL_MODE_NONE;
		queue[i]->entry.position = ++n_waiting;
	}
	return has_own;
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

/* Uses the nodes of one lock or semaphore. */
static void
use_object(Scan *scan, Znode *nodes, int n_nodes)
{
	Znode	  **permits = palloc(n_nodes * sizeof(Znode *));
	Znode	  **queue = palloc(n_nodes * sizeof(Znode *));
	int			n_permits = 0;
	int			n_queue = 0;
	int			capacity = 0;
	int			first = 0;

	for (int i = 0; i < n_nodes; i++)
	{
		ZklockEntry *entry = &nodes[i].entry;

		if (nodes[i].role == ROLE_CAPACITY && entry->data)
			(void) zkl_parse_capacity(entry->data, entry->data_len, &capacity);
		else if (nodes[i].role == ROLE_PERMIT && nodes[i].exists)
			permits[n_permits++] = &nodes[i];
		else if (nodes[i].role == ROLE_CONTENDER && nodes[i].exists)
			queue[n_queue++] = &nodes[i];
	}
	order_queue(queue, n_queue);
	if (scan->is_semaphore)
		first = place_semaphore(permits, n_permits, queue, n_queue, capacity);
	use_all(scan, permits, n_permits);
	use_all(scan, queue + first, n_queue - first);
}

/* Returns the end of the nodes of the lock or semaphore that begins here. */
static int
end_of_object(const Scan *scan, int from)
{
	int			to = from;

	while (to < scan->n_nodes && scan->nodes[to].object == scan->nodes[from].object)
		to++;
	return to;
}

/* Returns an upper bound of the memory for the data of these nodes, whose chunks are rounded up. */
static Size
data_size(const Scan *scan, int from, int to)
{
	Size		size = 0;

	for (int i = from; i < to; i++)
		if (has_data(&scan->nodes[i]))
			size += 2 * (Size) scan->nodes[i].length + 32;
	return size;
}

/* Reads the data of as many locks or semaphores as fit, at least of one, and uses their nodes. */
static bool
read_and_use(Scan *scan, int *next)
{
	int			from = *next;
	int			to = end_of_object(scan, from);
	Size		size = data_size(scan, from, to);
	MemoryContext old;

	while (to < scan->n_nodes)
	{
		int			end = end_of_object(scan, to);

		size += data_size(scan, to, end);
		if (size > MAX_MEMORY / 2)	/* blocks are larger than their chunks */
			break;
		to = end;
	}
	if (!read_nodes(scan, ZKL_OP_GET, scan->nodes + from, to - from))
		return false;
	old = MemoryContextSwitchTo(scan->data_memory);
	for (int end; from < to; from = end)
	{
		end = end_of_object(scan, from);
		use_object(scan, scan->nodes + from, end - from);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(scan->data_memory);
	*next = to;
	return true;
}

static bool
use_objects(Scan *scan)
{
	for (int next = 0; next < scan->n_nodes;)
		if (!read_and_use(scan, &next))
			return false;
	return true;
}


/*
 * Locks and semaphores
 */

/* Reads the nodes of the next locks or semaphores, of at most n; fewer if n do not fit. */
static bool
read_some(Scan *scan, int n)
{
	for (scan->n_names = n;; scan->n_names /= 2)
	{
		MemoryContextReset(scan->memory);
		scan->overflows = false;
		scan->n_nodes = 0;
		scan->max_nodes = 64;
		scan->nodes = palloc(scan->max_nodes * sizeof(Znode));
		if (!list_objects(scan))
			return false;
		if (!scan->overflows)
			return read_nodes(scan, ZKL_OP_STAT, scan->nodes, scan->n_nodes);
		if (scan->n_names == 1)
			zklock_fail(scan->reader->action, zklock_too_many_znodes);
	}
}

/* Reads the locks or semaphores of "names", some at a time. */
static bool
read_objects(Scan *scan, const char *const *names, int n_names)
{
	MemoryContext old = CurrentMemoryContext;
	bool		is_read = true;

	scan->memory = AllocSetContextCreate(old, "zklock queues", ALLOCSET_DEFAULT_SIZES);
	scan->data_memory = AllocSetContextCreate(old, "zklock data of queues", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(scan->memory);
	for (int from = 0; is_read && from < n_names; from += scan->n_names)
	{
		scan->names = names + from;
		is_read = read_some(scan, Min(n_names - from, MAX_OBJECTS)) && use_objects(scan);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(scan->memory);
	MemoryContextDelete(scan->data_memory);
	return is_read;
}

static int
compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *) a, *(const char *const *) b);
}

/* Reads all locks or all semaphores. */
static bool
read_all(Scan *scan)
{
	ZklOp		op = {.kind = ZKL_OP_LIST,.path = scan->parent};
	const ZklResult *list = zklock_read_batch(scan->reader, &op, 1);
	const char **names;
	int			n;

	if (list == NULL)
		return false;
	/* An empty result would mean that nobody holds anything. */
	if (list->code == ZKL_RC_NO_AUTH)
		zklock_raise(ZKL_NO_AUTH, scan->reader->action, 0);
	if (!zklock_read_found(scan->reader, list->code))
		return true;
	if (list->n_children > MAX_NAMES)
		zklock_fail(scan->reader->action, zklock_too_many_znodes);
	names = palloc((list->n_children + 1) * sizeof(char *));
	for (n = 0; n < list->n_children; n++)
		names[n] = pstrdup(list->children[n]);
	qsort(names, n, sizeof(char *), compare_names);
	return read_objects(scan, names, n);
}

bool
zklock_read_queues(ZklockReader *reader, bool is_semaphore, const char *name,
				   ZklockUseEntry use, void *arg)
{
	Scan		scan = {
		.reader = reader,
		.use = use,
		.arg = arg,
		.is_semaphore = is_semaphore,
		.parent = psprintf("%s/%s", zkl_session_root(reader->session),
						   is_semaphore ? "semaphores" : "locks"),
	};

	return name ? read_objects(&scan, &name, 1) : read_all(&scan);
}
