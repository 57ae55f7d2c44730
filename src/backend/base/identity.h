/*-------------------------------------------------------------------------
 *
 * identity.h
 *		The description of a holder in the data of its znodes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_IDENTITY_H
#define ZKLOCK_IDENTITY_H

/*
 * Returns a JSON object in UTF-8: client, server, pid, datname, usename,
 * application_name, since.  Palloc'd; only inside a transaction.
 */
extern char *zklock_identity(void);

/* Returns host:port of this server, as in "server".  Palloc'd. */
extern char *zklock_server_name(void);

/* Members of the object, in UTF-8; empty or 0 if missing. */
typedef struct ZklockIdentity
{
	char	   *server;
	char	   *datname;
	char	   *usename;
	char	   *application_name;
	int			pid;
} ZklockIdentity;

/* Reads any bytes; palloc'd.  NULL if they are no such object.  No other errors. */
extern ZklockIdentity *zklock_identity_read(const char *data, int length);

#endif							/* ZKLOCK_IDENTITY_H */
