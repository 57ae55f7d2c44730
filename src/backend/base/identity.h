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
 * Returns the data of this session's znodes, with the members server, pid, datname,
 * usename and application_name.  Palloc'd; only inside a transaction.
 */
extern char *zklock_identity(void);

/* Returns host:port of this server, as in "server". */
extern const char *zklock_server_name(void);

/*
 * Reads a member of any bytes; palloc'd, in UTF-8 unless another program wrote it.  NULL
 * if there is none, or if it is empty.  No errors.
 */
extern char *zklock_identity_member(const char *data, int length, const char *member);

#endif							/* ZKLOCK_IDENTITY_H */
