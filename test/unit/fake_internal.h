/*-------------------------------------------------------------------------
 *
 * fake_internal.h
 *		What fake_client.c and fake_seam.c share.
 *
 * In threaded mode all of it is guarded by a mutex of fake_seam.c's.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FAKE_INTERNAL_H
#define FAKE_INTERNAL_H

#include <pthread.h>

#include "fake_client.h"
#include "fake_wire.h"
#include "keeper.h"

#define FAKE_TRACE_SIZE 1024
#define FAKE_FIRST_MS 1000000

struct ZklClient
{
	ZklClient  *next;
	ZklEvents	events;
	void	   *context;
	int64_t		session_id;
	int			session_timeout_ms;
	bool		connected;
	bool		dead;			/* the ensemble ended the session */
	bool		told_dead;
	bool		hangs;
	FakeRequest *requests;		/* submitted, not yet at the server */
	FakeDelivery *deliveries;	/* answers and events on their way */
	int			submitted;		/* since fake_count() */
	int			fault_at;
	FakeFault	fault;
	bool		fault_happened;
	bool		held;			/* FAULT_DELAY */
	int			forgot_at;		/* FAULT_FORGET: submissions until then; 0: none */
	int64_t		alarm_ms;
	char		trace[FAKE_TRACE_SIZE];
	ZklKeeper  *keeper;			/* threaded mode */
	pthread_t	thread;
	bool		stopping;
};

extern ZklClient *fake_clients;
extern int64_t fake_now_ms;
extern int	fake_breaks_per_1000;
extern unsigned fake_breaks_seed;

/* The next request reaches the server, with the fault that is due. */
extern bool fake_apply_one(ZklClient *client);

/* NULL if there is none, or they are held up. */
extern FakeDelivery *fake_next_delivery(ZklClient *client);

/* Calls back and frees; without the mutex. */
extern void fake_call_back(ZklClient *client, FakeDelivery *delivery);
extern void fake_forget_watches(const ZklClient *client);
extern void fake_fire_data_watches(const char *path);
extern void fake_fire_child_watches(const char *path);

#endif							/* FAKE_INTERNAL_H */
