/*-------------------------------------------------------------------------
 *
 * owner.c
 *		The threads of the sessions' owners, which run one at a time.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdlib.h>

#include "owner.h"
#include "recipe/batch.h"

typedef struct Owner
{
	pthread_t	thread;
	bool		is_started;
	sem_t		go;
	sem_t		waits;
	Party	   *party;
	ZklDetector *detector;
	ZklRequest *request;		/* of the detector */
	bool		is_victim;		/* it has raised its error: it does nothing more */
	bool		is_limited;

	/* the step in progress */
	bool		is_in_step;
	ZklBatch   *awaited;		/* NULL: it pauses */
	bool		must_leave;
	jmp_buf		before_step;
	const ZklDeadlock *deadlock;
} Owner;

int			(*owner_find_waiters) (Party *party, const ZklLocalWaiter **local_waiters);
ZklDetectorConfig (*owner_config) (Party *party);

static Owner owners[MAX_PARTIES];

static Owner *
owner_of(const Party *party)
{
	return &owners[party - parties];
}


/*
 * On the owner's thread
 */

static bool
is_decided(const Owner *o)
{
	return zkl_request_status(o->request) != ZKL_PENDING;
}

/* Lets the test go on until it lets this owner run again. */
static void
yield(Owner *o)
{
	sem_post(&o->waits);
	sem_wait(&o->go);
	if (o->must_leave)
		longjmp(o->before_step, 1);
}

static bool
await_batch(void *arg, ZklBatch *batch)
{
	Owner	   *o = arg;

	o->awaited = batch;
	while (!is_decided(o) && zkl_batch_info(batch).status == ZKL_PENDING)
		yield(o);
	return !is_decided(o);
}

static bool
pause_step(void *arg, int ms)
{
	Owner	   *o = arg;

	(void) ms;
	o->awaited = NULL;
	yield(o);
	return !is_decided(o);
}

static int
find_waiters(void *arg, const ZklLocalWaiter **local_waiters)
{
	return owner_find_waiters(((Owner *) arg)->party, local_waiters);
}

uint32_t
owner_key_of(const char *name)
{
	uint32_t	key = 0;

	for (; *name; name++)
		key = key * 31 + (unsigned char) *name;
	return key;
}

static uint32_t
key_of(void *arg, const char *name)
{
	(void) arg;
	return owner_key_of(name);
}

static void *
owner_main(void *arg)
{
	Owner	   *o = arg;

	for (;;)
	{
		int64_t		next_ms;

		sem_wait(&o->go);
		if (setjmp(o->before_step) == 0)
			o->deadlock = zkl_detector_step(o->detector, &next_ms, &o->is_limited);
		o->is_in_step = false;
		sem_post(&o->waits);
	}
	return NULL;
}


/*
 * On the test's thread
 */

static void
switch_to(Owner *o)
{
	if (!o->is_started)
	{
		sem_init(&o->go, 0, 0);
		sem_init(&o->waits, 0, 0);
		pthread_create(&o->thread, NULL, owner_main, o);
		pthread_detach(o->thread);
		o->is_started = true;
	}
	sem_post(&o->go);
	sem_wait(&o->waits);
}

void
owner_interrupt(Party *party)
{
	Owner	   *o = owner_of(party);

	if (o->is_in_step)
	{
		o->must_leave = true;
		switch_to(o);
		o->must_leave = false;
	}
	if (o->detector)
		zkl_detector_end(o->detector);
	o->detector = NULL;
	o->deadlock = NULL;
	o->is_victim = false;
}

void
owner_notice(Party *party)
{
	Owner	   *o = owner_of(party);

	if (o->detector && is_decided(o))
		owner_interrupt(party);
}

bool
owner_is_limited(const Party *party)
{
	return owner_of(party)->is_limited;
}

bool
owner_is_in_step(const Party *party)
{
	return owner_of(party)->is_in_step;
}

/* Begins with the request that waits now, if any. */
static bool
begin(Owner *o, Party *party)
{
	static const ZklDetectorCallbacks callbacks = {await_batch, pause_step, find_waiters, key_of};
	Ask		   *ask = pending_of(party);
	ZklDetectorConfig config;
	ZklRequestInfo info;

	if (o->detector && (ask == NULL || ask->request != o->request))
		owner_interrupt(party);
	if (ask == NULL)
		return false;
	zkl_request_info(ask->request, &info);
	if (o->detector == NULL && info.blocked)
	{
		config = owner_config(party);
		o->is_limited = false;
		o->party = party;
		o->request = ask->request;
		o->detector = zkl_detector_begin(party->session, o->request, &config, &callbacks, o);
	}
	return o->detector && !o->is_victim && (o->is_in_step || info.blocked);
}

const ZklDeadlock *
owner_run(Party *party)
{
	Owner	   *o = owner_of(party);
	const ZklDeadlock *deadlock;

	if (!begin(o, party))
		return NULL;
	if (o->is_in_step && o->awaited && !is_decided(o) &&
		zkl_batch_info(o->awaited).status == ZKL_PENDING)
		return NULL;
	o->is_in_step = true;
	switch_to(o);
	deadlock = o->is_in_step ? NULL : o->deadlock;
	if (deadlock)
	{
		o->deadlock = NULL;
		o->is_victim = true;
	}
	return deadlock;
}
