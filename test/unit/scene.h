/*-------------------------------------------------------------------------
 *
 * scene.h
 *		Several sessions of the recipe layer on one fake ZooKeeper, and a
 *		referee who watches what they are told.
 *
 * The referee looks after every step: at no moment are two sessions told that
 * they hold a name unless both share it, no semaphore has more permits out than
 * its size, and each new exclusive holder's or permit's token is greater than
 * the one before.  A session that the ensemble has ended counts
 * no more (promise 1.1 names this exception).
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCENE_H
#define SCENE_H

#include "fake_client.h"
#include "recipe.h"
#include "tap.h"

#define SCENE_TIMEOUT_MS 6000
#define SCENE_LOCKS "/zklock/locks"
#define SCENE_SEMAPHORES "/zklock/semaphores"
#define MAX_PARTIES 6
#define MAX_WISHES 8

typedef struct Party
{
	ZklSession *session;		/* NULL: not there */
	ZklClient  *client;
	char		data[16];
} Party;

/* What a party was told it holds. */
typedef struct Hold
{
	Party	   *party;			/* NULL: unused */
	char		name[32];
	ZklMode		mode;
	int			size;			/* of a semaphore; 0: a lock */
	ZklLock    *lock;
} Hold;

/* A request, as its owner sees it. */
typedef struct Ask
{
	Party	   *party;			/* NULL: unused */
	ZklRequest *request;
	ZklStatus	status;			/* as last told */
	int			n;
	int			size;			/* of a semaphore; 0: locks */
	ZklLockWish wishes[MAX_WISHES];
	char		names[MAX_WISHES][32];
} Ask;

/* How the next sessions are opened; scene_begin() sets defaults. */
extern ZklSessionConfig scene_config;

extern Party parties[MAX_PARTIES];

/* A fresh ensemble, and this many connected sessions. */
extern void scene_begin(int n_parties);

/* The same, not connected. */
extern void scene_open(Party *party);

/* A session that is there and connected; runs all. */
extern void scene_join(Party *party);

/* Closes a session, and what it holds is forgotten. */
extern void scene_leave(Party *party);

/* Closes all sessions; the referee's verdict is a test if "promise" is given. */
extern void scene_end(const char *promise);

extern Ask *ask_all(Party *party, int n, const char *const *names,
					const ZklMode *modes, bool try_only);
extern Ask *ask_for(Party *party, const char *name, ZklMode mode);
extern Ask *try_for(Party *party, const char *name, ZklMode mode);

/* Asks, and runs all. */
extern Ask *lock_now(Party *party, const char *name, ZklMode mode);

/* For one permit of a semaphore of this size. */
extern Ask *ask_permit(Party *party, const char *name, int size);
extern Ask *try_permit(Party *party, const char *name, int size);
extern Ask *permit_now(Party *party, const char *name, int size);

/* How many permits was the party told it has? */
extern int	permits_of(const Party *party, const char *name);
extern void release_permit(Party *party, const char *name);

/* How many of its locks and permits are lost? */
extern int	lost_of(const Party *party);

/* Ends the request in any state; what was granted stays held. */
extern void forget(Ask *ask);
extern void give_up_all(Party *party);

/* The request that is not decided yet, or NULL. */
extern Ask *pending_of(const Party *party);

extern Hold *hold_of(const Party *party, const char *name);
extern ZklMode mode_of(const Party *party, const char *name);
extern int64_t token_of(const Party *party, const char *name);
extern void reduce(Party *party, const char *name, ZklMode mode);

/* Releases all but what a request builds on that is not decided. */
extern void release_all(Party *party);

/* Nodes below a name, or all (NULL), of a session's, or anybody's (NULL). */
extern int	nodes_of(const Party *party, const char *name);

/* The full path of a name, and of the only node of a session below it; static memory. */
extern const char *path_of(const char *name);
extern const char *node_of(const Party *party, const char *name);

/* A path below a semaphore's; static memory. */
extern const char *pool_of(const char *name, const char *below);

/* A node of another program's; returns its path, static memory. */
extern const char *foreign_node(const char *name, const char *child, int64_t session);

/* Brings back connections until nothing moves any more. */
extern void heal(void);

/* For a session that is over, or is to be: its owner opens another. */
extern void scene_rejoin(Party *party);

/* Does everybody who waits get the lock or an answer, when all others let go? */
extern bool scene_settles(void);

/* How often has the referee objected since scene_begin(), and to what first? */
extern int	objections(void);
extern const char *first_objection(void);

#endif							/* SCENE_H */
