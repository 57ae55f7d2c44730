/*-------------------------------------------------------------------------
 *
 * zk_library.h
 *		Declarations shared by the files that use the client library: zk_client.c,
 *		zk_passes.c, zk_drive.c, zk_connection.c, zk_calls.c, zk_names.c, zk_watches.c,
 *		zk_memory.c, zk_library.c.
 *
 * The library has process-wide variables and no locks.  So all calls of it, except
 * zoo_set_debug_level(), run with one mutex of the process held (zkl_zk_enter), also if an old
 * session is closing beside a new one.  An I/O thread may hold this mutex for long, in a TLS handshake.  The
 * owner does not wait for it; a queue keeps its operations until a
 * thread has the mutex.
 *
 * Order of the mutexes: the library's, a session's or that of the names, then one of
 * three: a client's queue, the I/O thread's own, the log ring's.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ZK_LIBRARY_H
#define ZKL_ZK_LIBRARY_H

#include <pthread.h>
#include <sys/time.h>

#ifdef ZKLOCK_HAVE_TLS
#define HAVE_OPENSSL_H			/* makes the header declare the TLS functions */
#endif
#include <zookeeper/zookeeper.h>

#include "client.h"
#include "io_thread.h"
#include "peek.h"

/* Of a numeric address with a port. */
#define ZKL_ADDRESS_SIZE 80

typedef struct ZklSubmission ZklSubmission;

/*
 * Operations from their submission to the answer; those that set a watch, until it fires.
 * One allocation; the bytes that the operations point to follow.
 */
struct ZklSubmission
{
	ZklSubmission *next;
	ZklClient  *client;
	ZklRequestForm form;
	ZklCall    *call;
	size_t		size;			/* of all this */
	int			n_ops;
	ZklOp		ops[];
};

/* State of the library's connection. */
typedef enum ZklPhase
{
	PHASE_NONE,
	PHASE_CONNECTING,			/* the server has not answered yet */
	PHASE_OPEN					/* messages pass */
} ZklPhase;

#define ZKL_WATCH_LISTS 256

struct ZklClient
{
	ZklIoThread *io_thread;
	const ZklClientEvents *events;
	ZklSession *session;
	char	   *connect_string;
	uint32_t	seed;			/* for the order in which it tries the servers */
	unsigned	pause_seed;		/* of the random part of the pauses */
	char	   *digest;
	char	   *tls;
	int			session_timeout_ms;
	clientid_t	resumed;		/* client_id 0: a new session */
	int			wait_fd;
	struct ACL_vector *acl;
	bool		drop_wanted;	/* the connection is to end; atomic */
	int			handshake_fd;	/* with TLS: readable after a handshake, or to end it */
	bool		in_handshake;	/* atomic */
	int			handshake_ms;	/* its limit */

	/* Guarded by queue_mutex. */
	pthread_mutex_t queue_mutex;
	ZklSubmission *first;		/* submitted, not yet in the library; read atomically without it */
	ZklSubmission *last;

	/* Written by the I/O thread only. */
	char		address[ZKL_ADDRESS_SIZE];	/* of the server that is tried, or was last */
	uint64_t	rank;			/* of this address, in the client's order */
	bool		is_chosen;		/* the library has this address, and has not tried it yet */
	bool		has_tried;		/* a server, since the last connection or the last round */
	int			retry_ms;		/* the last pause while it could not try to connect */

	/* Guarded by the library's mutex. */
	zhandle_t  *zh;
	ZklPhase	phase;
	int			fd;				/* our duplicate of the connection, or -1 */
	int			library_fd;		/* the library's own */
	ZklPeek		peek;
	bool		is_inside;		/* the library has read a part of a message ... */
	size_t		message_size;	/* ... of this size */
	bool		is_corked;		/* what is written waits for push() */
	int			n_unanswered;	/* requests */
	bool		is_too_long;	/* the answer to the oldest of them */
	ZklSubmission *watches[ZKL_WATCH_LISTS];	/* by a hash of their paths */
	bool		connected;		/* fd is in wait_fd; the owner reads this atomically */
	bool		out_is_full;	/* the connection takes no more bytes now */
	bool		in_is_full;		/* more to read, which poll() may not show */
	bool		is_muted;		/* this outage has been logged */
	int64_t		received_ms;	/* the server last sent something */
	int64_t		due_ms;			/* connected: a heartbeat, or a request, is sent by then */
	int64_t		asked_ms;		/* when it sent its connection request, which extends the session */
	int64_t		connect_by_ms;	/* the attempt to connect ends then; NEVER: it was ended for that */
	int			connect_ms;		/* the time of an attempt; 0: as for the first one */
	int64_t		connected_ms;	/* when it was connected last; 0: that connection was dropped here */
	int64_t		pause_until_ms; /* no attempt to connect before */
	int			pause_ms;		/* the last pause after a connection that died young */
};

/* zk_library.c: takes the library's mutex, however long that lasts; only the I/O thread. */
extern void zkl_zk_enter(ZklClient *client);

/* Does not wait; any thread. */
extern bool zkl_zk_try_enter(ZklClient *client);
extern void zkl_zk_leave(void);
extern bool zkl_zk_is_driving(void);

/* Logs a line of the library, or one in its form, as one of the driven client. */
extern void zkl_zk_log_io(const char *line);

/* zk_passes.c: the work of the I/O thread when it is due; may block.  Sets when it is due again. */
extern void zkl_zk_pass_io(ZklClient *client, ZklIoThreadWatch *watch);

/* zk_passes.c: counts the clients of this process, also those that are closing; any thread. */
extern int	zkl_zk_count_clients(int change);

/*
 * zk_names.c: moves the client's address on, in an order of its own, and starts lookups of the
 * names; false if no address is known yet.  Sets whether a new round begins.  Never waits for a
 * lookup.  Only the I/O thread.
 */
extern bool zkl_zk_next_server(ZklClient *client, bool *is_round);

/* Stores the address of the server as it is written in the connect string. */
extern void zkl_zk_describe_server(const ZklClient *client, char *out, size_t size);

/* Returns how many threads look names up; any thread. */
extern int	zkl_zk_lookups(void);

/* zk_drive.c, with the library's mutex held. */
extern void zkl_zk_exchange_io(ZklClient *client);
extern void zkl_zk_flush_out(ZklClient *client);

/* zk_connection.c, with the library's mutex held. */
extern void zkl_zk_session_io(zhandle_t *zh, int type, int state,
							  const char *path, void *client);
extern void zkl_zk_drop_connection(ZklClient *client);

/*
 * A part of the session timeout for a pause; of 15 s if that is shorter, because a call must not
 * fail for a pause alone.
 */
extern int	zkl_zk_timeout_part(const ZklClient *client, int part);

/* No attempt to connect for least_ms and a random part of random_ms, or longer if one pauses already. */
extern void zkl_zk_pause(ZklClient *client, int least_ms, int random_ms);
extern void zkl_zk_pause_after_refusal(ZklClient *client);

/* An attempt to connect begins: sets the time in which it must have an answer. */
extern void zkl_zk_begin_attempt(ZklClient *client, int64_t now);
extern int	zkl_zk_first_connect_ms(const ZklClient *client);
extern void zkl_zk_end_silent_attempt(ZklClient *client, int64_t now);

/* Is the heartbeat later than the lease allows? */
extern bool zkl_zk_is_late(const ZklClient *client, int64_t now);
extern void zkl_zk_end_if_late(ZklClient *client, int64_t now);
extern void zkl_zk_refuse_server(ZklClient *client, const char *problem);

/* Does what zkl_client_drop() has asked for. */
extern void zkl_zk_end_if_dropped(ZklClient *client);

/*
 * zk_memory.c: returns whether so many bytes, and those that the library needs in any
 * case, can be allocated.  False: the library must not be entered now.
 */
extern bool zkl_zk_has_memory(const ZklClient *client, size_t size);

/* Lets the I/O thread, which calls this first, allocate small amounts. */
extern void zkl_zk_prepare_memory(void);

/* zk_calls.c; the caller of ..._take_first() frees what it returns. */
extern bool zkl_zk_has_queued(const ZklClient *client);
extern ZklSubmission *zkl_zk_take_first(ZklClient *client);

/*
 * zk_calls.c, with the library's mutex held.  Passes all queued operations to the
 * library, and answers those that it refuses; returns whether it accepted any.
 */
extern bool zkl_zk_send_all_io(ZklClient *client);

/* Returns what the library wants to wait, in milliseconds, rounded up. */
static inline int64_t
zkl_zk_to_ms(const struct timeval *pause)
{
	return (int64_t) pause->tv_sec * 1000 + pause->tv_usec / 1000 + 1;
}

/* With the library's mutex held: does the library have a connection, or an attempt at one? */
static inline bool
zkl_zk_is_open(const ZklClient *client)
{
	int			state = zoo_state(client->zh);

	return state > 0 && state != ZOO_NOTCONNECTED_STATE;
}

/* zk_calls.c: the watcher of all watches. */
extern void zkl_zk_watched_io(zhandle_t *zh, int type, int state, const char *path,
							  void *client);

/*
 * zk_watches.c, with the library's mutex held.  Keeps a submission whose watch is set,
 * until it fires or the connection is lost.
 */
extern void zkl_watches_add(ZklSubmission *submission);
extern void zkl_watches_fired(ZklClient *client, const char *path);

/* The connection is lost, and the watches with it: the library must not set them again. */
extern void zkl_watches_forget(ZklClient *client, watcher_fn watcher);

#endif							/* ZKL_ZK_LIBRARY_H */
