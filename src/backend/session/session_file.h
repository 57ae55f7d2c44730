/*-------------------------------------------------------------------------
 *
 * session_file.h
 *		The file with the ZooKeeper sessions of this server's backends.
 *
 * Each backend notes its session before it creates nodes, and removes the note after it has
 * closed the session.  After a crash, crash_release.c closes the sessions that are still
 * noted.  A role that can read the file can end these sessions: doc/security.md.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_FILE_H
#define ZKLOCK_SESSION_FILE_H

#include "recipe/recipe.h"

/* A longer connect string is not noted: its sessions last for their timeout after a crash. */
#define ZKLOCK_NOTE_CONNECT_STRING 992

typedef struct ZklockSessionNote
{
	int32		n_resumed;		/* how often it was resumed to close it */
	int32		timeout_ms;		/* of the session */
	ZklSessionKey key;			/* the ensemble refuses one that is damaged */
	char		connect_string[ZKLOCK_NOTE_CONNECT_STRING];
} ZklockSessionNote;

/*
 * In the postmaster, while no process of this server uses shared memory: sets the former file
 * aside, and creates a new one.  A failure is logged, and then nothing is noted.
 */
extern void zklock_init_session_file(void);

/* Notes this backend's session; any number of times.  Does not throw. */
extern void zklock_note_session(ZklSession *session);
extern void zklock_forget_session(void);

/*
 * Calls back for each file that was set aside, and removes the file if this returns true.
 * Returns whether files are left.
 */
extern bool zklock_former_files(bool (*process) (const char *path, void *arg), void *arg);

/*
 * Reads a file that was set aside; throws if that fails.  Returns false if it cannot have been
 * written by former processes of this server on this machine since its start.  *free is
 * whether all these processes have gone; then *notes has what they have left, palloc'd.
 */
extern bool zklock_read_former_file(const char *path, bool *free, ZklockSessionNote **notes, int *n);

/* Replaces the notes of a free file by those that are left. */
extern void zklock_write_former_file(const char *path, const ZklockSessionNote *notes, int n);

#endif							/* ZKLOCK_SESSION_FILE_H */
