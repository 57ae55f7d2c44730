/*-------------------------------------------------------------------------
 *
 * members.h
 *		Reading a flat JSON object, as our nodes hold it.
 *
 * Pure functions on bytes that anybody may have written: no PostgreSQL, no
 * I/O, no allocation, no failure but "that is not one".  PostgreSQL's own
 * parser raises errors, and takes text in the database encoding only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MEMBERS_H
#define ZKLOCK_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>

/* The longest name or value that is read, with the closing NUL. */
#define ZKLOCK_MEMBER_SIZE 1024

typedef struct ZklockMembers
{
	const char *next;			/* what is not read yet */
	const char *end;
	bool		started;
	char		name[ZKLOCK_MEMBER_SIZE];
	char		value[ZKLOCK_MEMBER_SIZE];	/* of a string decoded, else as written */
} ZklockMembers;

extern void zklock_members_begin(ZklockMembers *members, const char *json,
								 size_t length);

/*
 * Reads the next member into name and value, which are closed with a NUL and
 * hold none.  False at the end, and where something is not as it should be.
 */
extern bool zklock_members_next(ZklockMembers *members);

#endif							/* ZKLOCK_MEMBERS_H */
