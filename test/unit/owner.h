/*-------------------------------------------------------------------------
 *
 * owner.h
 *		The thread of a session's owner while its request waits for long.
 *
 * A detector waits in callbacks, so each party's owner runs on a thread of its own.  Only
 * one thread runs at any time: owner_run() lets an owner run until it waits, and returns.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OWNER_H
#define OWNER_H

#include "scene.h"

/* What an owner sees when it looks at its server; set by waiters.c. */
extern int	(*owner_find_waiters) (Party *party, const ZklLocalWaiter **local_waiters);
extern ZklDetectorConfig (*owner_config) (Party *party);
extern uint32_t owner_key_of(const char *name);

/*
 * Does what a backend does when its wait loop wakes up: begins a step of the detector, or goes
 * on with one, until it waits for an answer, or the step is over.  Returns its deadlock,
 * after which the owner does nothing more for this request.
 */
extern const ZklDeadlock *owner_run(Party *party);

/* Leaves a step in progress with longjmp(), as an interrupt does, and ends the detector. */
extern void owner_interrupt(Party *party);

/* Lets the owner notice that its request is decided: its wait is over. */
extern void owner_notice(Party *party);

/* Is a step in progress: does it wait for an answer or pause? */
extern bool owner_is_in_step(const Party *party);

/* Was a step of the detector beyond its bounds? */
extern bool owner_is_limited(const Party *party);

#endif							/* OWNER_H */
