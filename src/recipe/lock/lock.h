/*-------------------------------------------------------------------------
 *
 * lock.h
 *		Requests for locks, and the locks that a session holds.
 *
 *		request_items.c		starting a request
 *		requests.c			all requests of a session
 *		request.c			one request: its nodes as a whole
 *		request_nodes.c		... what its nodes report
 *		grant.c				... when it is granted
 *		parents.c			... the znodes above its nodes
 *		sequence_restart.c	... when a lock's sequence numbers have to restart
 *		refusal.c			... non-blocking, with other contenders
 *		lock.c				held locks: release, downgrade, confirmation, loss
 *		hold_watch.c		... the watch that detects loss and revocation
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LOCK_H
#define ZKL_LOCK_H

#include "recipe/queue/queue.h"

typedef struct ZklPermit ZklPermit;
typedef struct ZklRequestKind ZklRequestKind;

struct ZklRequest
{
	ZklSession *session;
	ZklRequest *prev;			/* in the list of zkl__requests() */
	ZklRequest *next;
	ZklStatus	status;
	int			raw_code;
	int			culprit;
	ZklRequest *next_garbage;	/* to be freed */
	bool		ended;			/* the owner has ended it; freed with its last call */
	bool		try_only;
	bool		was_blocked;
	ZklUses		uses;
	ZklCall    *create_call;	/* the multi in flight */
	ZklCall    *czxid_call;		/* the read of a czxid in flight */
	ZklCall    *verify_call;	/* the multi that checks the nodes before the grant */
	ZklCall    *sequence_restart_call;	/* list, read or delete for a restart in flight */
	int			attempts;		/* consecutive creates that found no parent */
	bool		parents_unknown;	/* creating a parent may succeed if retried */
	bool		trusted_top;	/* top_path was not created: *top_exists was set */
	ZklStatus	parents_status; /* why a parent could not be created */
	int			parents_raw_code;
	int			exhausted_index;	/* index of the lock whose numbers are used up, or -1 */
	int64_t		exhausted_czxid;	/* of the node whose number was too high */
	char	   *sequence_restart_watch; /* path watched while exhausted_index >= 0, or NULL */
	int			n;
	int			n_held;			/* nodes[0] to nodes[n_held - 1] were HELD when last checked */
	ZklNode   **nodes;
	ZklLock   **locks;			/* for each node: held before, or granted and not taken */
	ZklLock   **ungranted;		/* those of "locks" that are not granted yet */
	ZklNodeNames node_names;	/* the scheme of the nodes' names */
	char	   *data;
	int			data_len;
	char		blocker[sizeof(((ZklRequestInfo *) 0)->blocker)];
	const char *top_path;		/* parent of all locks, or of all semaphores */
	bool	   *top_exists;		/* the session's flag for it */
	const ZklRequestKind *kind; /* NULL: a request for locks */
	ZklPermit  *permit;			/* set if it is a request for a permit */
	void		(*on_ended) (ZklRequest *request);	/* granted or failed; or NULL */
	uint64_t	n_probes;		/* of this and the next one, see ZklRequestInfo */
	bool		is_unsearched;
};

/* A kind of request that needs more than nodes in queues, such as one for a permit. */
struct ZklRequestKind
{
	/* names of the parents of its nodes, which are all below one znode; ends with NULL */
	const char *const *parts;

	/*
	 * Sends the next operation besides those of the nodes.  When all nodes are
	 * first in their queues, grants the request in the end.
	 */
	void		(*on_drive) (ZklRequest *request);
	/* outstanding answers are to be ignored */
	void		(*on_restart) (ZklRequest *request);
	/* the request fails; its nodes are deleted afterwards */
	void		(*on_failed) (ZklRequest *request);
	void		(*create_parents) (ZklRequest *request);
	/* returns whether the owner has to decide: refuse or wait */
	bool		(*is_refused) (const ZklRequest *request);
	void		(*on_info) (const ZklRequest *request, ZklRequestInfo *info);
	void		(*on_free) (ZklRequest *request);
};

/*
 * A lock that the session holds.  The anchor is its first node and exists until
 * the lock is released; the anchor's czxid is the token.
 */
struct ZklLock
{
	ZklSession *session;
	ZklLock    *prev;			/* in the list of lock.c */
	ZklLock    *next;
	bool		taken;			/* by the owner, from its request */
	bool		lost;
	int			confirm_index;	/* index of its first check in the confirming multi */
	int			revocations;
	int64_t		token;
	ZklNode    *anchor;
	ZklNode    *upgrade;		/* the writer node next to a reader anchor, or NULL */
};

/* request_items.c */
extern ZklRequest *zkl__request_new(ZklSession *session, int n, bool try_only,
									const char *data, int data_len);
extern bool zkl__session_has_room(const ZklSession *session, int n_nodes,
								  size_t path_bytes, size_t data_bytes);

/* requests.c */
extern const ZklSessionPart zkl__requests_part;
extern ZklRequest *zkl__requests(const ZklSession *session);
extern void zkl__request_link(ZklRequest *request);
extern ZklCall *zkl__request_call(ZklRequest *request, ZklHandler handler);

/* request_nodes.c */
extern ZklNode *zkl__request_node_new(ZklRequest *request, int index,
									  const char *lock_path, ZklMode mode, bool upgrade);

/* request.c */
extern void zkl__request_drive(ZklRequest *request);
extern void zkl__request_fail(ZklRequest *request, ZklStatus status,
							  int culprit, int raw_code);
extern void zkl__request_fail_code(ZklRequest *request, int culprit,
								   const ZklResult *result);
extern void zkl__request_restart(ZklRequest *request);
extern void zkl__request_no_parent(ZklRequest *request);
extern void zkl__request_blocked(ZklRequest *request, int culprit,
								 const ZklResult *data);
extern void zkl__request_free_memory(ZklRequest *request);

/* grant.c */
extern void zkl__request_grant(ZklRequest *request);

/* parents.c */
extern const ZklSessionPart zkl__parents_part;
extern ZklCreateKind zkl__container_kind(const ZklSession *session);
extern void zkl__request_send_parent(ZklRequest *request, ZklNode *node, const char *path,
									 const char *data, ZklCreateKind kind);
extern void zkl__request_send_parents(ZklRequest *request);

/* lock.c */
extern const ZklSessionPart zkl__locks_part;

/* hold_watch.c */
extern const ZklSessionPart zkl__hold_watch_part;

#endif							/* ZKL_LOCK_H */
