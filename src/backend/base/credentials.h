/*-------------------------------------------------------------------------
 *
 * credentials.h
 *		The credentials of a session: a password, certificates (credentials.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CREDENTIALS_H
#define ZKLOCK_CREDENTIALS_H

#include <stddef.h>


typedef struct ZklockCredentials
{
	char	   *digest;			/* "user:password", or NULL */
	char	   *tls;			/* the TLS files, in the form of the client library, or NULL */
} ZklockCredentials;

/*
 * Reads and checks the files that the settings name.  Throws F0000 if a file cannot be
 * used, without revealing its contents.  Allocates with palloc().
 */
extern void zklock_credentials_read(ZklockCredentials *credentials);

/* Erases the secrets and frees the memory. */
extern void zklock_credentials_wipe(ZklockCredentials *credentials);

/*
 * Stores the names of the TLS files that the settings name, in the form of the client library;
 * an empty text if there are none.  Returns false if they do not fit.
 */
extern bool zklock_tls_files(char *text, size_t size);

/* Can the client library read the files with these names, if there are any? */
extern bool zklock_tls_files_are_readable(const char *text);

#endif							/* ZKLOCK_CREDENTIALS_H */
