/*-------------------------------------------------------------------------
 *
 * lease_clock.h
 *		How long the ensemble certainly keeps a session, as times of its confirmed writes.
 *
 * Pure functions: no I/O; "now" is an argument.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LEASE_CLOCK_H
#define ZKL_LEASE_CLOCK_H

#include "session.h"

/* A confirmed quorum write. */
typedef struct ZklConfirmation
{
	int64_t		submitted_ms;	/* 0: none */
	int64_t		answered_ms;
} ZklConfirmation;

/* Of a session that was never connected, all is 0. */
typedef struct ZklLeaseClock
{
	int64_t		timeout_ms;		/* of the session, on its last connection */
	int64_t		lease_from_ms;	/* submit time of the last quorum write that renewed the lease */
	int64_t		trusted_until_ms;	/* what is held is lost then; at most 2T/3 after lease_from_ms */
	int64_t		reached_ms;		/* submit time of the last one, or handshake, that was answered */
	ZklConfirmation settled;	/* the newest settled write */
	ZklConfirmation confirmed;	/* a later one, not settled when it was noted */
	int64_t		no_proof_before_ms; /* the last one failed */
} ZklLeaseClock;

extern int64_t zkl__clock_reserve(const ZklLeaseClock *clock);
extern int64_t zkl__clock_left(const ZklLeaseClock *clock, int64_t submitted_ms, int64_t now);
extern int64_t zkl__clock_interval(const ZklLeaseClock *clock);
extern bool zkl__clock_is_fresh(const ZklLeaseClock *clock, int64_t now);
extern int64_t zkl__clock_settled_ms(const ZklLeaseClock *clock, int64_t now);
extern bool zkl__clock_is_backed(const ZklLeaseClock *clock, int64_t now);
extern void zkl__clock_confirmed(ZklLeaseClock *clock, const ZklCall *write, int64_t now);
extern void zkl__clock_connected(ZklLeaseClock *clock, int64_t timeout_ms, int64_t asked_ms);
extern void zkl__clock_pause(ZklLeaseClock *clock, int64_t now);
extern int64_t zkl__clock_proof_due_ms(const ZklLeaseClock *clock);

#endif							/* ZKL_LEASE_CLOCK_H */
