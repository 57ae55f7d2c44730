/*-------------------------------------------------------------------------
 *
 * identity.h
 *		What our nodes tell about who holds them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_IDENTITY_H
#define ZKLOCK_IDENTITY_H

/*
 * A JSON object in UTF-8: client, server, pid, datname, usename,
 * application_name, since.  Palloc'd; in a transaction only.
 */
extern char *zklock_identity(void);

/* host:port of this server, as there.  Palloc'd. */
extern char *zklock_server_name(void);

/* What it tells, in UTF-8; empty or 0 where it does not. */
typedef struct ZklockIdentity
{
	char	   *server;
	char	   *datname;
	char	   *usename;
	char	   *application_name;
	int			pid;
} ZklockIdentity;

/* Reads any bytes, palloc'd; NULL if they are none of ours.  Throws nothing else. */
extern ZklockIdentity *zklock_identity_read(const char *data, int length);

#endif							/* ZKLOCK_IDENTITY_H */
