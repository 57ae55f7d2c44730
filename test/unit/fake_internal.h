/*-------------------------------------------------------------------------
 *
 * fake_internal.h
 *		Private declarations of fake_client.c, fake_watches.c and fake_seam.c.
 *
 * In threaded mode a mutex of fake_seam.c guards everything here.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FAKE_INTERNAL_H
#define FAKE_INTERNAL_H

#include <pthread.h>

#include "fake_client.h"
#include "fake_wire.h"
#include "recipe/zookeeper/io_thread.h"

#define FAKE_TRACE_SIZE 1024
#define FAKE_FIRST_MS 1000000

struct ZklClient
{
	ZklClient  *next;
	const ZklClientEvents *events;
	ZklSession *session;
	int64_t		session_id;
	int			session_timeout_ms;
	bool		connected;
	bool		dead;			/* the ensemble ended the session */
	bool		reported_dead;
	bool		hangs;
	bool		is_calling;		/* a callback runs */
	bool		ends;			/* zkl_client_end() was called */
	bool		closes_late;	/* ... zkl_client_close() was, in a callback */
	bool		lags;			/* its servers catch up only when they must */
	int64_t		view;			/* the last transaction that its server has seen */
	int64_t		seen;			/* ... and that it has reported to the client */
	ZklResultCode sync_code;	/* of the next sync */
	int64_t		last_write_ms;	/* submission time of the last write that reached the leader */
	FakeRequest *requests;		/* submitted, not yet executed */
	FakeDelivery *deliveries;	/* undelivered answers and events */
	int			submitted;		/* since fake_count() */
	int			fault_at;
	FakeFault	fault;
	bool		fault_happened;
	bool		held;			/* FAULT_DELAY */
	int			forgot_at;		/* FAULT_FORGET: submissions until then; 0: none */
	int64_t		timer_ms;
	int			proofs;			/* sent */
	int			drops;			/* connections that the session has ended */
	char		trace[FAKE_TRACE_SIZE];
	ZklIoThread *io_thread;		/* threaded mode */
	pthread_t	thread;
	bool		has_thread;
	bool		stopping;
};

extern ZklClient *fake_clients;
extern int64_t fake_now_ms;
extern int	fake_breaks_per_1000;
extern unsigned fake_breaks_seed;

/* Executes the next request, with the fault that is due. */
extern bool fake_apply_one(ZklClient *client);

/* Returns NULL if there is none, or if deliveries are held up. */
extern FakeDelivery *fake_next_delivery(ZklClient *client);

/* After a callback: does what the callback requested but could not do itself. */
extern void fake_called_back(ZklClient *client);

/* Calls back and frees the delivery; without the mutex. */
extern void fake_call_back(ZklClient *client, FakeDelivery *delivery);

/* fake_watches.c */
extern void fake_watch_add(ZklClient *client, const char *path, bool children);
extern void fake_forget_watches(const ZklClient *client);

/* The client's server sees these transactions; touched watches become events, once. */
extern void fake_catch_up_to(ZklClient *client, int64_t zxid);

/* A transaction has happened. */
extern void fake_list_servers(void);

#endif							/* FAKE_INTERNAL_H */
