/*-------------------------------------------------------------------------
 *
 * log.h
 *		Where the client library's log lines go until the owner takes them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LOG_H
#define ZKL_LOG_H

#include <stdio.h>

/* Keeps one line of the client library's; the oldest is dropped when full.  Any thread. */
extern void zkl_log_keep_io(const char *line);

/*
 * A stream that does so, for where the library takes no function; made once for
 * the process.  NULL when out of memory.
 */
extern FILE *zkl_log_stream(void);

#endif							/* ZKL_LOG_H */
