/*-------------------------------------------------------------------------
 *
 * play.h
 *		Scenes written as texts: sessions act, and checks follow.
 *
 * A text is a list of steps, separated by commas.  A step is a party (A to D, or "all",
 * also where no party acts) and a verb, mostly with an argument.
 *
 * Actions; the names of locks have one letter, and "a" may be left out:
 *
 *		lock abc			requests these locks in one request
 *		share, try, tryshare		the same for sharing; non-blocking attempts
 *		permit s3, trypermit	requests a permit of this semaphore of capacity 3, or else PLAY_SIZE
 *		giveback s			releases a permit
 *		giveup				ends the party's last request
 *		again				the owner of an attempt says that what it waits for is no pending delete
 *		downgrade			keeps the lock shared
 *		release a			releases the lock; without names everything, together
 *		leave				gives up, and releases everything
 *		confirm, confirm fresh		requests a confirmation of the session
 *		join tag=7			the party has another session, with this server tag; "nodes=2": with this limit;
 *							"names=kazoo", "names=mutex": whose nodes have these names
 *		note				remembers the token of "a"
 *		close				the party's session ends
 *		disconnect, connect, expire
 *		keep, keep 5000		keeps what it releases from now on, for so many milliseconds
 *		leavekept			gives up what it keeps
 *		fault drop			the next action's first operation has this fault; dashes for
 *							blanks: "fault apply-and-drop"; "fault drop@2": the second one
 *		pass 5000			time passes, in milliseconds
 *		stall 5000			... and no timer is served
 *		delete				another client deletes the party's node
 *		apply				one operation gets to the server, and its answer does not arrive yet
 *		deliver, deliverall	one answer or event arrives; all do
 *		ring				the party's timer is served if it is due
 *		lag, catchup 1		the party's servers lag; catch up by one transaction
 *		number 5 a			(of all) the next number in the queue
 *		until u				the party's operations, up to the first of this kind (as in "sends"), get
 *							to the server, and the last answers do not arrive yet
 *		revoke a			another client sets the data of the party's node to __REVOKE__
 *		write x				... of its node of "a" to x
 *		deny /a, denyread /a, denyexactly /a	(of all) an ACL forbids to create and delete nodes at or below this
 *							path; to read this node; to create it; without a path no more
 *		reap				(of all) the server deletes empty containers
 *		foreign				another program's writer waits for "a" in the party's session; its name is that
 *							of Curator or kazoo, whose random UUIDs may have the bit of nodes that may be
 *							kept; "foreign bit": of one whose GUID looks like zklock's; "foreign
 *							go": of go-zookeeper, 16 random bytes without dashes
 *
 * After an action everything runs until nothing changes; after "lock!" the next step
 * follows at once.
 *
 * Checks:
 *
 *		has X, has S0 ab	the modes of these locks; 0: not held; x, s: lost
 *		is pending			the last request: or ok, busy, deadlock, and others (play_checks.c)
 *		asks yes			has the request, which waits, asked whom it waits for?
 *		confirmed ok		the confirmation, in the same words
 *		state expired		the session: or connecting, connected, suspended, refused
 *		lease 2000			the rest of the session's lease, in milliseconds
 *		token czxid ab		the tokens of these locks are the czxids of their nodes; "noted": the remembered one
 *		behind a/party-1	the last request waits for this session, because of this name; none; none/any-more
 *		nodes 1				the party's nodes
 *		named __lock__		a part of the name of the party's node of "a"
 *		watches 1			the party's watches
 *		sends cl			the operations submitted since the party's last action
 *		lost 1				the party's lost locks
 *		proofs 1, drops 1	how many proofs the session has sent, and how many connections it has ended
 *		trust 2000			how long what the session holds can be trusted; none: it holds nothing; passed
 *		wrote 0				so many milliseconds ago the leader has got a write, or a proof, of the session
 *		intact yes			does the session have all that it holds?
 *		losses 1			(of all) how often the callback has reported a loss
 *		revocations 1 a		how often the lock's holder has been asked to release it; of all: calls of the callback
 *		data party-0		the data of the party's node of "a", with dashes for blanks
 *		permits 1 s			the party's permits of this semaphore, or those of all
 *		word may			the last word of its node's data: or ask, use; no: none, -: no node
 *
 * A test may have verbs of its own: play_verbs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PLAY_H
#define PLAY_H

#include "scene.h"

#define PLAY_PARTIES 4
#define PLAY_SIZE 2
#define PLAY_KEEP_MS 3600000

/* Begins with HERE. */
typedef struct Play
{
	const char *file;
	int			line;
	const char *promise;
	const char *steps;
} Play;

typedef struct PlayVerb PlayVerb;

/* A step of a text. */
typedef struct Step
{
	Party	   *party;			/* NULL: all */
	char		word[16];
	char		argument[64];
	char		names[64];
	bool		at_once;		/* the next step follows before anything runs */
	const PlayVerb *verb;		/* NULL: unknown */
} Step;

/* An action; or a check, which writes what it found, to be compared with the argument. */
struct PlayVerb
{
	const char *word;			/* NULL: the end of a list */
	void		(*act) (const Step *step);
	void		(*find) (const Step *step, char *found);
	ZklMode		mode;
	bool		non_blocking;
};

/* Those above; the test's own verbs. */
extern const PlayVerb play_checks[];
extern const PlayVerb *play_verbs;

/* Plays each text with four sessions, which is one test; the referee watches. */
extern void play_all(const Play *plays, int n);

/* Does the actions of a text in the present scene; "run" runs all after each. */
extern void play_act(const char *steps, bool run);

/* The token that "note" remembers. */
extern int64_t play_noted_token;

/* Forgets the requests of the scene before. */
extern void play_begin(void);

/* The party's last request, if it has not been given up; or NULL. */
extern Ask *play_asked(const Party *party);

#endif							/* PLAY_H */
