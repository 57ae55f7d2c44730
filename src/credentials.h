/*-------------------------------------------------------------------------
 *
 * credentials.h
 *		What a session shows to the ensemble: a password, certificates.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CREDENTIALS_H
#define ZKLOCK_CREDENTIALS_H

typedef struct ZklockCredentials
{
	char	   *digest;			/* "user:password", or NULL */
	char	   *tls;			/* the files for TLS as the client takes them, or NULL */
	uint64		hash;			/* other than before: another session is needed */
} ZklockCredentials;

/*
 * Reads and checks the files that the settings name.  Throws F0000 if one can't
 * be used, without telling what is in it.  palloc's.
 */
extern void zklock_credentials_read(ZklockCredentials *credentials);

/* Forgets the secret. */
extern void zklock_credentials_wipe(ZklockCredentials *credentials);

#endif							/* ZKLOCK_CREDENTIALS_H */
