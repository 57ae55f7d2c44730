/*
 * handover.pml: who reads from the connection, the owner or the thread?
 *
 * Owns the reasoning of src/recipe/zookeeper/io_thread.c and zk_drive.c: each message of the
 * server's is read, by one of the two and by one at a time, and each request is
 * sent, without any help of the clock but the grace after which the thread takes
 * over. So turns by the clock (heartbeats) are left out here. Run by
 * test/model/run, which names the mistakes.
 *
 * The owner may stop for good anywhere outside of its sleep: it runs a long
 * query. An error may throw it out of its sleep.
 */
#ifndef MESSAGES
#define MESSAGES 3		/* that the server sends, in all */
#endif
#ifndef ROUNDS
#define ROUNDS 3		/* sleeps and requests of the owner's */
#endif

/* Guarded by the keeper's mutex, which is an atomic step here. */
bool owner_sleeps;
bool recent;			/* the owner woke less than the grace ago */
bool on_duty;			/* the thread sleeps on the connection */
bool oversleeps;		/* the thread sleeps until it is kicked */
bool pass_wanted;
bool kicked;			/* the eventfd that wakes the thread */

/* The library's mutex, and who is in it. */
bool library;
byte readers;

byte unread;			/* messages in the connection */
bool queued;			/* a request that is not sent */
bool woken;			/* the eventfd that wakes the owner */
bool news;			/* read by the thread, and not seen by the owner */
bool patient;			/* the owner sleeps, and nothing else wakes it */

#ifdef NO_LIBRARY_MUTEX
#define TAKE_LIBRARY skip
#define LIBRARY_IS_FREE true
#define LEAVE_LIBRARY skip
#else
#define TAKE_LIBRARY atomic { !library -> library = true }
#define LIBRARY_IS_FREE !library
#define LEAVE_LIBRARY library = false
#endif

inline enter()
{
	readers++;
	assert(readers == 1)
}

inline leave()
{
	readers--;
	LEAVE_LIBRARY
}

proctype Server()
{
	byte n;
	do
	:: n < MESSAGES -> atomic { unread++; n++ }
	:: break		/* or says no more */
	od
}

/* Reads what there is, and sends what is asked for. */
inline exchange(by_thread)
{
	queued = false;
	do
	:: unread > 0 ->
		atomic {
			unread--;
			news = by_thread
		};
#ifndef NO_WAKE
		if
		:: by_thread -> woken = true
		:: else
		fi
#endif
	:: unread == 0 -> break
	od
}

/* zkl_io_thread_owner_woke() */
inline woke()
{
	bool kick;
	atomic {
		kick = !on_duty && oversleeps;
		owner_sleeps = false;
		recent = true
	};
#ifndef NO_KICK
	if
	:: kick -> kicked = true
	:: else
	fi
#endif
}

/* zkl_client_flush() */
inline submit()
{
	queued = true;
	if
	:: atomic { LIBRARY_IS_FREE -> library = true };
		enter();
		queued = false;
		leave()
#ifdef NO_LIBRARY_MUTEX
	:: false
#else
	:: library ->
#ifndef NO_TURN
		pass_wanted = true;
		kicked = true
#else
		skip
#endif
#endif
	fi
}

proctype Owner()
{
	byte round;
	do
	:: round < ROUNDS ->
		round++;
		if
		:: submit()
		:: skip
		fi;
		if
		:: break	/* runs a long query */
		:: skip
		fi;

		/* The wait: wakes by a message, by the thread, by its latch, or by an error. */
		atomic { owner_sleeps = true };
		if
		:: patient = true;
endwait:		(unread > 0 || woken);
			patient = false
		:: skip
#ifdef ERROR_KEEPS_SLEEPING
		:: break
#endif
		fi;
		woke();
		if
		:: break	/* the error, or a long query */
		:: skip
		fi;

		/* zkl_client_exchange(), which may not have the patience. */
		if
		:: TAKE_LIBRARY;
			enter();
			exchange(false);
			leave()
		:: library
		fi;
		atomic { woken = false; news = false }
	:: round == ROUNDS -> break
	od
}

/* prepare_sleep() */
inline decide()
{
	on_duty = !owner_sleeps && !recent;
	oversleeps = owner_sleeps
}

proctype Thread()
{
	bool ready;
end:	do
	:: pass_wanted ->
		pass_wanted = false;
		TAKE_LIBRARY;
		enter();
		exchange(true);
		leave()
	:: else ->
#ifdef DECIDES_LATE
		bool asleep;
		asleep = owner_sleeps;
		atomic {
			on_duty = !asleep && !recent;
			oversleeps = asleep
		};
#else
		atomic { decide() };
#endif
endsleep:	if
		:: atomic { kicked -> kicked = false }; ready = false
		:: on_duty && unread > 0 -> ready = true
		:: !oversleeps && !on_duty -> recent = false; ready = false	/* the grace is over */
		fi;
		atomic {
			pass_wanted = pass_wanted || (ready && !owner_sleeps && !recent);
			on_duty = false;
			oversleeps = false
		}
	od
}

/* When nothing moves any more, all is read, sent and known. */
proctype Judge()
{
	timeout ->
	assert(unread == 0);
	assert(!queued);
	assert(!(patient && news))
}

init
{
	atomic {
		run Server();
		run Owner();
		run Thread();
		run Judge()
	}
}
