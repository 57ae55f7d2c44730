/*-------------------------------------------------------------------------
 *
 * client.h
 *		Interface between the recipes and the ZooKeeper client library.
 *
 * The files zk_*.c implement it with libzookeeper_st; test/unit/fake_client.c
 * implements it with a simulated ZooKeeper that fails on demand.  The recipes see
 * nothing else of the client library.
 *
 * - Every operation is asynchronous.  An operation that returned true is answered
 *   exactly once with answer_io (ZklClientEvents), never from inside the call that submitted
 *   it.  An operation that returned false was not sent and is never answered.  An
 *   operation without an answer when zkl_client_close() returns stays unanswered.
 * - Answers, watches and connection events arrive one at a time, in the order in which
 *   the server and the connection produced them: on the I/O thread, or on a thread
 *   that calls zkl_client_exchange() or zkl_client_flush().  The timer may run beside
 *   them.
 * - Operations may be submitted on any thread, with the caller's mutex held;
 *   zkl_client_flush(), without this mutex, sends them.
 * - Strings and buffers passed in are copied before the call returns.
 * - Nothing here throws, exits, prints, or depends on PostgreSQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_CLIENT_H
#define ZKL_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "operation.h"
#include "recipe/recipe.h"

typedef struct ZklClient ZklClient;

/* An operation in flight, of the session. */
typedef struct ZklCall ZklCall;

typedef enum ZklConnectionEvent
{
	ZKL_EVENT_CONNECTED,		/* the session is usable, for the first time or again */
	ZKL_EVENT_DISCONNECTED,		/* the connection is lost; the session may live */
	ZKL_EVENT_EXPIRED,			/* the ensemble ended the session; final */
	ZKL_EVENT_AUTH_FAILED		/* credentials refused; final */
} ZklConnectionEvent;

/* Filled in for ZKL_EVENT_CONNECTED. */
typedef struct ZklConnectionInfo
{
	ZklSessionKey key;
	int			session_timeout_ms; /* as negotiated */
	int64_t		asked_ms;		/* when the attempt to connect began; see zkl_now_ms() */
	char		server[64];		/* address:port */
} ZklConnectionInfo;

/* What a client calls; the table must exist as long as the client. */
typedef struct ZklClientEvents
{
	void		(*event_io) (ZklSession *session, ZklConnectionEvent event,
							 const ZklConnectionInfo *info);

	/* what the result points to is valid only during this call */
	void		(*answer_io) (ZklCall *call, const ZklResult *result);

	/* a watch on "path" fired, see ZklOp */
	void		(*watch_io) (ZklSession *session, const char *path);

	/* the time given to zkl_client_set_timer() has come */
	void		(*timer_io) (ZklSession *session);

	/* the last event, if zkl_client_close() returned false: the client has closed */
	void		(*closed_io) (ZklSession *session);
} ZklClientEvents;

/*
 * Starts a client and returns at once; its I/O thread resolves names and connects.
 * wait_fd (epoll) is readable when zkl_client_exchange() has work.
 * Returns NULL when memory, threads or descriptors are exhausted.  The client must be
 * used and closed in the same process.
 */
extern ZklClient *zkl_client_open(const ZklSessionConfig *config, int wait_fd,
								  const ZklClientEvents *events, ZklSession *session);

/*
 * Ends the session at the ensemble if the client is connected, stops the I/O thread
 * and frees the client.  The I/O thread first sends what is queued and reads the answers,
 * for a second or two.  Blocks for at most timeout_ms; false means that the time did not
 * suffice: the I/O thread continues, may still call back, and says when it has closed.
 * The caller must not hold a mutex that a callback takes.
 */
extern bool zkl_client_close(ZklClient *client, int timeout_ms);

/*
 * Makes the I/O thread end the session at the ensemble and stop, and returns at once.
 * zkl_client_close() must still be called.  Callbacks may call this, and also
 * zkl_client_close() with timeout 0, which then returns false.
 */
extern void zkl_client_end(ZklClient *client);

/*
 * Ends the connection, if there is one, and connects again: the server does not answer.
 * Any thread, also with the caller's mutex held; never waits.
 */
extern void zkl_client_drop(ZklClient *client);

/* Sets the time (zkl_now_ms) of the next timer event, replacing an earlier one. */
extern void zkl_client_set_timer(ZklClient *client, int64_t at_ms);

/*
 * Sends what was submitted: now, or soon if another thread is in the library.  Any
 * thread, without the caller's mutex; never waits.
 */
extern void zkl_client_flush(ZklClient *client);

/*
 * The owner calls this before and after it polls wait_fd.  Meanwhile, and for some
 * milliseconds afterwards, the I/O thread leaves it time to read.  An owner that an error has
 * interrupted may leave out the second call.
 */
extern void zkl_client_waits(ZklClient *client, bool waits);

/*
 * Reads what the server has sent, and calls back.  To be called when wait_fd is readable: if
 * the owner does not, the I/O thread reads.  Only the owner's
 * thread, without its mutex; waits for a millisecond at most.
 */
extern void zkl_client_exchange(ZklClient *client);

/* Submits the operations as one request. */
extern bool zkl_client_submit(ZklClient *client, ZklRequestForm form, const ZklOp *ops,
							  int n_ops, ZklCall *call);

#endif							/* ZKL_CLIENT_H */
