/*-------------------------------------------------------------------------
 *
 * syntax.h
 *		What settings and the credentials file must look like.
 *
 * Pure functions on bytes that people wrote: no PostgreSQL, no I/O, no
 * allocation.  settings.c and session.c call them, test/fuzz feeds them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SYNTAX_H
#define ZKLOCK_SYNTAX_H

#include <stdbool.h>
#include <stddef.h>

/* An absolute znode path that is not "/" itself. */
extern bool zklock_is_znode_path(const char *path);

/* host:port[,host:port...][/chroot] */
extern bool zklock_is_connect_string(const char *hosts);

/* A path, or none, that can stand in a list separated by commas. */
extern bool zklock_is_tls_path(const char *path);

/*
 * The "user:password" in the first line of a credentials file, closed with a
 * NUL in place; NULL if that line is not "digest user:password".  "text" has
 * room for one more byte than "length".
 */
extern char *zklock_credentials_in(char *text, size_t length);

/* Replaces the control characters in UTF-8, which stays so: bytes of others, on their way to a terminal. */
extern void zklock_hush(char *utf8, size_t length);

/* Replaces all that is not printable ASCII: bytes of others, on their way to a log. */
extern void zklock_make_plain(char *text);

#endif							/* ZKLOCK_SYNTAX_H */
