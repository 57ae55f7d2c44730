/*-------------------------------------------------------------------------
 *
 * members.h
 *		Reads a flat JSON object, as in the data of zklock's nodes.
 *
 * Pure functions on bytes from any program: no PostgreSQL, no I/O, no allocation,
 * no failure except "not such an object".  PostgreSQL's own parser raises errors,
 * and accepts only text in the database encoding.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MEMBERS_H
#define ZKLOCK_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>

/* The longest name or value, with the terminating NUL. */
#define ZKLOCK_MEMBER_SIZE 1024

typedef struct ZklockMembers
{
	const char *next;			/* the unread rest */
	const char *end;
	bool		started;
	char		name[ZKLOCK_MEMBER_SIZE];
	char		value[ZKLOCK_MEMBER_SIZE];	/* decoded if a string, otherwise as written */
} ZklockMembers;

extern void zklock_members_begin(ZklockMembers *members, const char *json,
								 size_t length);

/*
 * Reads the next member into name and value, which are NUL-terminated and contain no
 * other NUL.  Returns false at the end and at a syntax error.
 */
extern bool zklock_members_next(ZklockMembers *members);

#endif							/* ZKLOCK_MEMBERS_H */
