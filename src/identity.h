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

#endif							/* ZKLOCK_IDENTITY_H */
