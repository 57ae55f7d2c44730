/*-------------------------------------------------------------------------
 *
 * scene.h
 *		Several sessions of the recipe layer on one fake ZooKeeper, and a referee
 *		that checks every grant.
 *
 * After every step the referee checks that no two sessions were granted a name
 * unless both share it, that no semaphore has more permits out than its capacity,
 * and that each new exclusive holder's or permit's token is greater than the one
 * before.  A session that the ensemble has expired does not count.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCENE_H
#define SCENE_H

#include "fake_client.h"
#include "recipe/recipe.h"
#include "tap.h"

#define SCENE_TIMEOUT_MS 6000
#define SCENE_LOCKS "/zklock/locks"
#define SCENE_SEMAPHORES "/zklock/semaphores"
#define MAX_PARTIES 6
#define MAX_ITEMS 8

typedef struct Party
{
	ZklSession *session;		/* NULL: unused */
	ZklClient  *client;
	char		data[16];
	int			keep_ms;		/* a keeper: how long it keeps the locks that it releases; or 0 */
} Party;

/* What a party was granted. */
typedef struct Hold
{
	Party	   *party;			/* NULL: unused */
	char		name[32];
	ZklMode		mode;
	int			size;			/* capacity of a semaphore; 0: a lock */
	ZklLock    *lock;
} Hold;

/* A request, as its owner sees it. */
typedef struct Ask
{
	Party	   *party;			/* NULL: unused */
	ZklRequest *request;
	ZklStatus	status;			/* as last reported */
	int			n;
	int			size;			/* capacity of a semaphore; 0: locks */
	ZklLockItem items[MAX_ITEMS];
	char		names[MAX_ITEMS][32];
} Ask;

/* Configuration of the sessions opened next; scene_begin() sets defaults. */
extern ZklSessionConfig scene_config;

extern Party parties[MAX_PARTIES];

/* What the callbacks have reported since scene_begin(), all parties together. */
extern int	losses_reported;
extern int	revocations_reported;

/* Starts with a fresh ensemble and this many connected sessions. */
extern void scene_begin(int n_parties);

/*
 * Opens a session, without connecting it.  Its server tag is that of scene_config, or, if
 * that is 0, one of its own.
 */
extern void scene_open(Party *party);

/* Opens a session, connects it and runs all. */
extern void scene_join(Party *party);

/* Called before a request of the party ends, or its session; NULL after scene_begin(). */
extern void (*scene_before_end) (Party *party);

/* Closes a session, and forgets its holds. */
extern void scene_leave(Party *party);

/*
 * Closes all sessions.  An objection of the referee is a failed test; with "promise", that
 * it has none is one that passes.
 */
#define scene_end(promise) scene_end_at(HERE, promise)
extern void scene_end_at(const char *file, int line, const char *promise);

/* Forgets the objections: in the scene that ends two may hold a lock. */
extern void scene_without_referee(void);

extern Ask *ask_all(Party *party, int n, const char *const *names,
					const ZklMode *modes, bool non_blocking);
extern Ask *ask_for(Party *party, const char *name, ZklMode mode);
extern Ask *try_for(Party *party, const char *name, ZklMode mode);

/* Requests a lock, and runs all. */
extern Ask *lock_now(Party *party, const char *name, ZklMode mode);

/* Requests one permit of a semaphore of this capacity. */
extern Ask *ask_permit(Party *party, const char *name, int size);
extern Ask *try_permit(Party *party, const char *name, int size);
extern Ask *permit_now(Party *party, const char *name, int size);

/* How many permits was the party granted? */
extern int	permits_of(const Party *party, const char *name);
extern void release_permit(Party *party, const char *name);

/* How many of its locks and permits are lost? */
extern int	lost_of(const Party *party);

/* Ends the request in any state; what was granted stays held. */
extern void forget(Ask *ask);
extern void give_up_all(Party *party);

/* Returns the party's pending request, or NULL. */
extern Ask *pending_of(const Party *party);

/* Iterates over all holds of a party; NULL after the last one. */
extern const Hold *next_hold(const Party *party, const Hold *after);

extern Hold *hold_of(const Party *party, const char *name);
extern ZklMode mode_of(const Party *party, const char *name);
extern int64_t token_of(const Party *party, const char *name);
extern void reduce(Party *party, const char *name, ZklMode mode);

/* Releases all holds except those that a pending request builds on. */
extern void release_all(Party *party);

/* Counts the nodes of a session, or of all (NULL), below a name, or below all (NULL). */
extern int	nodes_of(const Party *party, const char *name);

/* The full path of a name, and of a session's only node below it; static memory. */
extern const char *path_of(const char *name);
extern const char *node_of(const Party *party, const char *name);

/* The same for any parent, or for any node (NULL); "": there is none. */
extern const char *node_below(const Party *party, const char *parent);

/* Another client deletes the node; it is an error if that fails. */
extern void delete_by_hand(const char *path);

/* A path below a semaphore's; static memory. */
extern const char *pool_of(const char *name, const char *below);

/* Creates a node; returns its path, static memory, or "" if that was refused. */
extern const char *make_node(const char *path, const char *data, ZklCreateKind kind, int64_t session);

/* The same, of another program in a lock's queue. */
extern const char *foreign_node(const char *name, const char *child, int64_t session);

/* Reconnects clients until nothing changes any more; all servers catch up. */
extern void heal(void);

/* For a session that has expired or is to expire: its owner opens another one. */
extern void scene_rejoin(Party *party);

/* Does every waiter get the lock or an answer once all others release? */
extern bool scene_settles(void);

/* The referee's objections since scene_begin(): their number, and the first one. */
extern int	objections(void);
extern const char *first_objection(void);

#endif							/* SCENE_H */
