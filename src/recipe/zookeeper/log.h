/*-------------------------------------------------------------------------
 *
 * log.h
 *		Keeps the client library's log lines until the owner takes them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LOG_H
#define ZKL_LOG_H

#include <stdio.h>

#include "recipe/recipe.h"

/* Keeps one line; a full buffer drops its oldest one.  Any thread. */
extern void zkl_log_keep_io(const char *line);

/* Notes a line for zkl_log_last_problem(); an empty one ends the problem.  Any thread. */
extern void zkl_log_note_problem_io(const char *line);

/* Returns the level of one of the client library's lines, and where its text begins. */
extern ZklLogLevel zkl_log_parse(const char *line, const char **text);

/*
 * Returns a stream that passes lines to a function, for a library call that takes only a
 * stream.  Opened once for the process; NULL when out of memory.  With the library's mutex.
 */
extern FILE *zkl_log_stream(void (*keep_io) (const char *line));

#endif							/* ZKL_LOG_H */
