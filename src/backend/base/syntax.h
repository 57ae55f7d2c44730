/*-------------------------------------------------------------------------
 *
 * syntax.h
 *		Syntax of settings and credentials; text of others made safe to show.
 *
 * Pure functions: no PostgreSQL, no I/O, no allocation.  test/fuzz tests them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SYNTAX_H
#define ZKLOCK_SYNTAX_H

#include <stdbool.h>
#include <stddef.h>

/* Is this an absolute znode path that ZooKeeper accepts, and not "/"? */
extern bool zklock_is_znode_path(const char *path);

/* Has this the form host:port[,host:port...][/chroot]? */
extern bool zklock_is_connect_string(const char *hosts);

/* Is this empty, or a path that can be part of a comma-separated list? */
extern bool zklock_is_tls_path(const char *path);

/*
 * Returns the "user:password" in the first line of a credentials file, NUL-terminated in
 * place; NULL if that line is not "digest user:password".  "text" has room for one more
 * byte than "length".
 */
extern char *zklock_credentials_in(char *text, size_t length);

/*
 * Replaces characters in UTF-8 that a terminal interprets or hides, byte by byte, so that
 * the rest keeps its position: control and bidirectional characters, line separators,
 * characters without width.  For displayed text from other programs.  Returns whether
 * there were any.
 */
extern bool zklock_mask_controls(char *utf8, size_t length);

/*
 * Decodes what zkl_encode_name() has encoded, in place; all other bytes stay.  Returns the
 * new length: a decoded byte may be NUL.
 */
extern size_t zklock_decode(char *text);

/* Replaces everything but printable ASCII; for logging bytes from other programs. */
extern void zklock_make_plain(char *text);

#endif							/* ZKLOCK_SYNTAX_H */
