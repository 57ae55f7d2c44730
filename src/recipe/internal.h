/*-------------------------------------------------------------------------
 *
 * internal.h
 *		What the files of the recipe layer share, and nobody else sees.
 *
 * One mutex per session guards everything below.  It is taken by the public
 * functions of recipe.h and by the client's callbacks (..._io); the functions
 * declared here as zkl__... are called with it held, on either thread, and
 * never wait.
 *
 *		session.c		the session, calls in flight
 *		clock.c			what is due by the clock
 *		move.c			one node: a new name for it
 *		wish.c			how a request begins
 *		request.c		a request: its nodes as a whole
 *		grant.c			... and when they are granted
 *		parents.c		the znodes above them
 *		drain.c			a request that waits for sequence numbers to restart
 *		queue_lock.c	one node: the state machine from create to delete
 *		succession.c	... when it needs no list to be known as first
 *		leave.c			... and how it goes, alone or with others
 *		lock.c			what is held: reduce, confirm, loss
 *		guard.c			... and watched, so that loss and revocation are noticed
 *		semaphore.c		a permit: its queue, its node, the count
 *		size.c			... and whether the semaphore is the one that is meant
 *		survey.c		reading what stands in queues
 *		waits.h			long waits, and deadlocks: waits.c, look.c, exam.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_INTERNAL_H
#define ZKL_INTERNAL_H

#include <pthread.h>

#include "client.h"
#include "node.h"
#include "pool.h"
#include "recipe.h"

typedef struct ZklNode ZklNode;
typedef struct ZklPermit ZklPermit;
typedef struct ZklCall ZklCall;
typedef struct ZklWaits ZklWaits;
typedef struct ZklItem ZklItem;
typedef struct ZklTurns ZklTurns;

typedef void (*ZklHandler) (ZklCall *call, const ZklResult *result);

/* An operation in flight; it keeps its node, request or survey alive until answered. */
struct ZklCall
{
	ZklCompletion completion;	/* first: the client knows only this */
	ZklSession *session;
	ZklCall    *prev;			/* in session->calls, oldest first */
	ZklCall    *next;
	int64_t		submitted_ms;
	bool		is_nudge;		/* nobody waits for its answer */
	bool		confirms;		/* a quorum write: OK renews the lease */
	ZklHandler	handler;
	ZklNode    *node;			/* what it is about: one of these, or none */
	ZklRequest *request;
	ZklSurvey  *survey;
	ZklItem    *item;			/* of the survey */
};

/*
 * What must be asked next about a node.  Where the state says so and no
 * answer is outstanding, zkl__node_drive() sends the operation; so a state
 * survives a lost connection by being driven again on the next one.
 */
typedef enum ZklNodeState
{
	NODE_NEW,					/* to be created, by its request */
	NODE_CREATING,				/* create sent */
	NODE_UNKNOWN,				/* its answer was lost: look for the GUID */
	NODE_LISTING,				/* exists: list the queue to see where it stands */
	NODE_BARRING,				/* upgrade: move up to a waiting writer's number */
	NODE_READING,				/* behind: read the predecessor with a watch */
	NODE_WAITING,				/* behind: until the watch fires */
	NODE_STAMPING,				/* first: waits for the request's czxid */
	NODE_HELD,
	NODE_DOWNGRADING,			/* held: becoming a reader of the same number */
	NODE_LEAVING,				/* delete it */
	NODE_GONE					/* freed with its last call */
} ZklNodeState;

/* One node of ours, from the wish to create it until it is known to be gone. */
struct ZklNode
{
	ZklSession *session;
	ZklNode    *prev;			/* in session->nodes */
	ZklNode    *next;
	ZklNodeState state;
	bool		wanted;			/* false: given up or released */
	int			calls;			/* in flight with this node as target */
	ZklCall    *asked;			/* the one whose answer this state waits for */
	ZklCall    *listed;			/* the list sent right behind the create */
	bool		unlisted;		/* STAMPING: the czxid tells whether it is first */
	bool		put_off;		/* LEAVING: between zkl__leave_begin() and its end */
	char	   *lock_path;
	char	   *data;
	int			data_len;
	ZklMode		mode;
	bool		upgrade;		/* the session holds a reader node as well */
	bool		is_lease;		/* a permit's, in no queue */
	ZklDialect	dialect;		/* of its name */
	uint64_t	guid_counter;
	int32_t		number;
	int64_t		czxid;			/* 0: not known */
	char		name[ZKL_CHILD_NAME_SIZE];	/* child name; before it exists, its prefix */
	char		new_name[ZKL_CHILD_NAME_SIZE];	/* BARRING, DOWNGRADING: the name to move to */
	char	   *watched;		/* path of the predecessor, or of the writer to bar */
	uint64_t   *blockers;		/* behind: the owners of all nodes in the way */
	int			n_blockers;
	ZklRequest *request;		/* NULL when held or given up */
	int			index;			/* in the request */
	ZklLock    *lock;			/* NULL unless held */
	int64_t		guard_ms;		/* when a held node is to be watched */
	ZklCall    *guarding;		/* the read that sets the watch on a held node */
	bool		is_guarded;		/* ... was sent */
	int32_t		revoked_version;	/* of its data, when last asked back; or 0 */
};

struct ZklRequest
{
	ZklSession *session;
	ZklRequest *prev;			/* in session->requests */
	ZklRequest *next;
	ZklStatus	status;
	int			raw_code;
	int			culprit;
	bool		ended;			/* the owner forgot it; freed with its last call */
	bool		try_only;
	bool		was_blocked;
	int			calls;
	ZklCall    *created;		/* the multi in flight */
	ZklCall    *stamped;		/* the read of a czxid in flight */
	ZklCall    *verified;		/* the multi that checks the nodes before the grant */
	bool		is_verified;
	ZklCall    *drained;		/* list, read or delete about an exhausted parent in flight */
	int			attempts;		/* creates that found no parent, in a row */
	bool		parents_unknown;	/* one may be made by trying again */
	bool		trusted_top;	/* those of all locks, or semaphores, were not tried */
	ZklStatus	parents_status; /* why a parent could not be made */
	int			parents_raw_code;
	int			draining;		/* index of the exhausted name, or -1 */
	int64_t		exhausted_czxid;	/* of the node whose number was too high */
	char	   *drain_watch;	/* path waited for while draining */
	int			n;
	ZklNode   **nodes;
	ZklLock   **locks;			/* what is held before; what is granted, until taken */
	ZklLock   **unborn;			/* those of them that are not granted yet */
	char	   *data;
	int			data_len;
	char		blocker[sizeof(((ZklRequestInfo *) 0)->blocker)];
	ZklPermit  *permit;			/* what a request for a permit has besides, or NULL */
};

/* What the last count of a semaphore's permits said, as long as nothing changed. */
typedef enum ZklSeen
{
	SEEN_NOTHING,				/* to be counted */
	SEEN_ROOM,
	SEEN_FULL					/* until the watch on the permits fires */
} ZklSeen;

/*
 * A permit that is asked for.  The request's only node is the one in the queue
 * of the semaphore's mutex; what is known about the pool is good for as long as
 * that node exists.
 */
struct ZklPermit
{
	bool		kazoo;			/* the layout; see pool.h */
	int			size;
	char	   *pool_path;
	char	   *lease_path;		/* the permits' parent */
	ZklNode    *lease;			/* ours, or NULL until it is our turn */
	bool		in_turn;		/* the mutex was held when last looked */
	ZklSeen		seen;
	uint64_t   *owners;			/* of the others' permits, when last seen full */
	int			n_owners;		/* -1: not all are known */
	int			n_own;			/* of this session's nodes among the permits then */
	bool		is_guarded;		/* the mutex's node is watched */
	bool		layout_known;	/* it is ours */
	bool		size_known;		/* it is ours, or nobody's */
	bool		size_unset;		/* the pool has no data, and this version */
	int32_t		version;
	int			other_size;
	ZklCall    *parts_listed;	/* calls in flight */
	ZklCall    *sized;
	ZklCall    *counted;
	ZklCall    *stamped;
	ZklCall    *holder_read;
	ZklCall    *guarding;
};

/*
 * What the session holds below one name.  The anchor is its first node and
 * stays until everything is released; its czxid is the token.
 */
struct ZklLock
{
	ZklSession *session;
	ZklLock    *prev;			/* in session->locks */
	ZklLock    *next;
	bool		taken;			/* the owner knows that it holds this */
	bool		lost;
	int			revocations;
	int64_t		token;
	ZklNode    *anchor;
	ZklNode    *upgrade;		/* the writer node beside a reader anchor, or NULL */
};

struct ZklSession
{
	pthread_mutex_t mutex;
	ZklClient  *client;
	int			wakeup_fd;
	bool		wake_due;		/* make it readable when the mutex is free */
	bool		woken;			/* it is readable, or about to be */
	ZklSessionState state;
	ZklConnectionInfo connection;
	int64_t		opened_ms;		/* when first connected */
	int64_t		disconnected_ms;	/* valid while suspended */
	int64_t		lease_from_ms;	/* submit time of the last confirmed quorum write */
	int64_t		alarm_ms;		/* 0: none set */
	int64_t		retry_ms;		/* drive everything again; 0: no need */
	int64_t		retried_ms;		/* when that was last asked for */
	int			retry_delay_ms; /* and how long it then waited */
	int64_t		next_nudge_ms;	/* while something is unanswered; else 0 */
	int64_t		nudge_pause_ms;
	int64_t		guard_ms;		/* watch what is held and not watched; 0: all is */
	uint64_t	n_answers;		/* calls that were answered, not lost */
	uint64_t	guid_counter;
	bool		no_containers;	/* the server knows none */
	bool		top_exists[2];	/* the znodes above all locks, and above all semaphores */

	char	   *root;
	char	   *locks_path;
	char	   *semaphores_path;
	ZklDialect	dialect;
	int			max_nodes;
	int32_t		sequence_limit;
	void		(*on_loss_io) (void);
	void		(*on_revoke_io) (void);

	ZklCall    *calls;
	ZklCall    *last_call;
	ZklNode    *nodes;
	ZklRequest *requests;
	ZklLock    *locks;
	int			n_lost;			/* how many of them are lost */
	ZklWaits   *waits;			/* NULL until there was a long one */
	ZklSurvey  *surveys;
	bool		garbage;		/* something is ready to be freed */
	int			leaving;		/* depth of zkl__leave_begin() */
	ZklTurns   *turns;			/* what succession.c knows, or NULL */

	ZklCall    *confirming;
	bool		confirm_wanted;
	ZklStatus	confirm_status;
	ZklLock   **confirm_locks;	/* the lock behind each operation of the multi */
	int			n_confirm_locks;
};

/*
 * Half of what a server takes in one packet by default (jute.maxbuffer), for
 * the paths of a session's nodes, which the server writes into one closing
 * transaction, and for the paths and data of one multi.
 */
#define ZKL_PACKET_BYTES 500000

/* session.c */
extern void zkl__session_lock(ZklSession *session);
extern void zkl__session_unlock(ZklSession *session);
extern void zkl__wake(ZklSession *session);
extern bool zkl__is_final(const ZklSession *session);
extern void zkl__session_end(ZklSession *session, ZklSessionState state);
extern void zkl__drive_all(ZklSession *session);
extern void zkl__ignore_answer(ZklCall *call, const ZklResult *result);
extern ZklCall *zkl__call_new(ZklSession *session, ZklHandler handler,
							  ZklNode *node, ZklRequest *request);
extern ZklCall *zkl__call_sent(ZklCall *call, bool sent);
extern char *zkl__path(const char *parent, const char *child);

/* clock.c */
extern void zkl__retry_later(ZklSession *session);
extern void zkl__nudge_later(const ZklCall *call);
extern void zkl__arm_alarm(ZklSession *session, int64_t at_ms);
extern void zkl__alarm_io(void *context);

/* queue_lock.c */
extern ZklNode *zkl__node_new(ZklRequest *request, int index,
							  const char *lock_path, ZklMode mode, bool upgrade);
extern void zkl__node_drive(ZklNode *node);
extern void zkl__node_relist(ZklNode *node);
extern void zkl__node_list(ZklNode *node);
extern void zkl__node_created(ZklNode *node, ZklResultCode code,
							  const char *path, int64_t czxid);
extern void zkl__node_stamped(ZklNode *node, int64_t czxid);
extern void zkl__node_leave(ZklNode *node);
extern void zkl__node_watch_fired(ZklNode *node, const char *path);
extern void zkl__node_free(ZklNode *node);

/* succession.c */
extern bool zkl__succession_foreseen(const ZklNode *node);
extern bool zkl__succession_proven(const ZklNode *node);
extern void zkl__succession_note(const ZklNode *node);
extern void zkl__succession_forget(ZklSession *session);

/* leave.c */
extern void zkl__node_gone(ZklNode *node);
extern void zkl__node_send_delete(ZklNode *node);
extern void zkl__leave_begin(ZklSession *session);
extern void zkl__leave_end(ZklSession *session);

/* move.c */
extern void zkl__node_send_move(ZklNode *node);
extern void zkl__node_downgrade(ZklNode *node);

/* wish.c */
extern void zkl__permit_free(ZklPermit *permit);

/* request.c */
extern void zkl__request_drive(ZklRequest *request);
extern void zkl__request_fail(ZklRequest *request, ZklStatus status,
							  int culprit, int raw_code);
extern void zkl__request_fail_code(ZklRequest *request, int culprit,
								   const ZklResult *result);
extern void zkl__request_created(ZklRequest *request);
extern void zkl__request_restart(ZklRequest *request);
extern void zkl__request_no_parent(ZklRequest *request);
extern void zkl__request_blocked(ZklRequest *request, int culprit,
								 const ZklResult *data);
extern void zkl__request_free(ZklRequest *request);
extern void zkl__request_free_memory(ZklRequest *request);
extern ZklStatus zkl__status_of(ZklResultCode code);

/* grant.c */
extern void zkl__request_grant(ZklRequest *request);
extern void zkl__request_check_granted(ZklRequest *request);

/* parents.c */
extern void zkl__request_send_parents(ZklRequest *request);

/* drain.c */
extern bool zkl__request_drain_if_exhausted(ZklRequest *request);
extern void zkl__drain_drive(ZklRequest *request);
extern void zkl__drain_watch_fired(ZklRequest *request, const char *path);

/* lock.c */
extern void zkl__lock_reduce(ZklLock *lock, ZklMode mode);
extern void zkl__lock_node_lost(ZklNode *node);
extern void zkl__lock_lose(ZklLock *lock);
extern void zkl__tell_loss(const ZklSession *session);
extern void zkl__tell_revocation(const ZklSession *session);
extern void zkl__confirm_drive(ZklSession *session);

/* survey.c */
extern void zkl__survey_drive(ZklSurvey *survey);
extern void zkl__surveys_drive(ZklSession *session);
extern void zkl__surveys_sweep(ZklSession *session, bool all);

/* guard.c */
extern void zkl__guard_later(ZklNode *node);
extern void zkl__guard_drive(ZklSession *session, int64_t now);
extern void zkl__guard_watch_fired(ZklNode *node, const char *path);

/* semaphore.c */
extern void zkl__permit_drive(ZklRequest *request);
extern void zkl__permit_recount(ZklRequest *request);
extern void zkl__permit_watch_fired(ZklRequest *request, const char *path);
extern void zkl__permit_leave(ZklRequest *request);
extern void zkl__permit_reset(ZklRequest *request);
extern bool zkl__permit_in_queue(const ZklRequest *request);
extern bool zkl__permit_in_turn(const ZklRequest *request);
extern int	zkl__permit_limit(const ZklPermit *permit);
extern void zkl__permit_parents(ZklRequest *request);

/* size.c */
extern void zkl__pool_look(ZklRequest *request);
extern bool zkl__pool_is_ours(const ZklPermit *permit);

#endif							/* ZKL_INTERNAL_H */
