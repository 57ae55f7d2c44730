/*
 * handover.pml: which thread reads from the connection, the owner or the I/O thread?
 *
 * Owns the reasoning of src/recipe/zookeeper/io_thread.c, zk_drive.c and zk_library.c: each message of the
 * server is read by one of the two threads, one at a time, and each request is sent. The
 * grace period, for which the I/O thread leaves reading to the owner, may be of any length
 * here. Timed passes (heartbeats) are left out. test/model/run runs the variants.
 *
 * The owner may stop for good anywhere except in its sleep, because it runs a long
 * query. An error may end its sleep.
 */
#ifndef MESSAGES
#define MESSAGES 3		/* of the server, in all */
#endif
#ifndef ROUNDS
#define ROUNDS 3		/* sleeps and requests of the owner */
#endif

/* Guarded by the I/O thread's mutex, which is an atomic step here. */
bool pass_wanted;
bool kicked;			/* the eventfd that wakes the thread */

/* The library's mutex, and the number of threads in the library. */
bool library;
byte readers;

byte unread;			/* messages in the connection */
bool queued;			/* a request that is not sent yet */
bool woken;			/* the eventfd that wakes the owner */
bool unseen;			/* an answer that the thread has read, but the owner has not seen */
bool sleeps_deeply;		/* the owner sleeps, and nothing else wakes it */

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
	:: break		/* or sends no more */
	od
}

/* Reads all messages, and sends the queued request. */
inline exchange(by_thread)
{
	queued = false;
	do
	:: unread > 0 ->
		atomic {
			unread--;
			unseen = by_thread
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
#ifndef NO_PASS
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

		/* The wait: a message, the thread, the latch, or an error wakes the owner. */
		if
		:: sleeps_deeply = true;
endwait:		(unread > 0 || woken);
			sleeps_deeply = false
		:: skip
		fi;
		if
		:: break	/* the error, or a long query */
		:: skip
		fi;

		/* zkl_client_exchange(), which returns at once if the library is in use. */
		if
		:: TAKE_LIBRARY;
			enter();
			exchange(false);
			leave()
		:: library
		fi;
		atomic { woken = false; unseen = false }
	:: round == ROUNDS -> break
	od
}

proctype Thread()
{
end:	do
	:: pass_wanted ->
		pass_wanted = false;
		TAKE_LIBRARY;
		enter();
		exchange(true);
		leave()
	:: else ->
endsleep:	if
		:: atomic { kicked -> kicked = false }
#ifndef OWNER_ALONE
		:: unread > 0 ->
			/* The grace period is over. */
			if
			:: unread > 0 -> pass_wanted = true
			:: else
			fi
#endif
		fi
	od
}

/* When no process can proceed, all messages are read, all requests sent, all answers seen. */
proctype Judge()
{
	timeout ->
	assert(unread == 0);
	assert(!queued);
	assert(!(sleeps_deeply && unseen))
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
