/*-------------------------------------------------------------------------
 *
 * log.h
 *		Where the client library's log lines go until the owner takes them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LOG_H
#define ZKL_LOG_H

/* Keeps one line of the client library's; the oldest is dropped when full.  Any thread. */
extern void zkl_log_keep_io(const char *line);

#endif							/* ZKL_LOG_H */
