/*-------------------------------------------------------------------------
 *
 * crash.h
 *		Closes the sessions that a crash has left.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CRASH_H
#define ZKLOCK_CRASH_H

#include "recipe/recipe.h"


/*
 * The file with the ZooKeeper sessions of this server's backends (session_file.c)
 *
 * Each backend notes its session before it creates nodes, and removes the note after it has
 * closed the session.  After a crash, crash_release.c closes the sessions that are still
 * noted.  A role that can read the file can end these sessions: doc/security.md.
 */

/* With longer texts a session is not noted: after a crash it lasts for its timeout. */
#define ZKLOCK_NOTE_TEXT 496

/* Has no secret but the session's own key, and no name of a file with a password. */
typedef struct ZklockSessionNote
{
	int32		n_resumed;		/* how often it was resumed to close it */
	int32		timeout_ms;		/* of the session */
	ZklSessionKey key;			/* the ensemble refuses one that is damaged */
	char		connect_string[ZKLOCK_NOTE_TEXT];
	char		tls[ZKLOCK_NOTE_TEXT];	/* zklock_tls_files(), or empty */
} ZklockSessionNote;

/*
 * In the postmaster, while no process of this server uses shared memory: sets the former file
 * aside, and creates a new one.  A failure is logged, and then nothing is noted.
 */
extern void zklock_init_session_file(void);

/* Notes this backend's session; any number of times.  Does not throw. */
extern void zklock_write_session_note(ZklSession *session);
extern void zklock_erase_session_note(void);

typedef enum ZklockFormerFile
{
	ZKLOCK_FORMER_FREE,			/* all processes that had the file open are gone */
	ZKLOCK_FORMER_IN_USE,
	ZKLOCK_FORMER_FOREIGN,		/* not written by processes of this server since the machine's boot */
	ZKLOCK_FORMER_UNREADABLE	/* errno has the reason */
} ZklockFormerFile;

typedef enum ZklockFormerResult
{
	ZKLOCK_FORMER_DONE,			/* remove the file */
	ZKLOCK_FORMER_AGAIN,		/* look at it again, soon */
	ZKLOCK_FORMER_LEAVE			/* to the next start of the server */
} ZklockFormerResult;

/*
 * Calls back for each file that was set aside.  Returns whether one of them needs another
 * look.  Does not throw.
 */
extern bool zklock_former_files(ZklockFormerResult (*process) (const char *path, void *arg), void *arg);

/* Reads a file that was set aside.  If it is free, *notes has what is left, palloc'd. */
extern ZklockFormerFile zklock_read_former_file(const char *path, ZklockSessionNote **notes, int *n);

/* Replaces the notes of a free file by those that are left.  Does not throw. */
extern void zklock_write_former_file(const char *path, const ZklockSessionNote *notes, int n);


/*
 * A background worker closes the sessions that a crash has left (crash_release.c)
 */

/* In _PG_init(). */
extern void zklock_register_crash_release(void);

#endif							/* ZKLOCK_CRASH_H */
