/*-------------------------------------------------------------------------
 *
 * credentials.h
 *		Reads the credentials of a session: a password, certificates.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CREDENTIALS_H
#define ZKLOCK_CREDENTIALS_H

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

#endif							/* ZKLOCK_CREDENTIALS_H */
