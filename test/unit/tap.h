/*-------------------------------------------------------------------------
 *
 * tap.h
 *		The part of the Test Anything Protocol that the C tests need.
 *
 * A program calls these functions on one thread and ends with "return done();".
 *
 *-------------------------------------------------------------------------
 */
#ifndef TAP_H
#define TAP_H

#include <stdbool.h>
#include <stdint.h>

/* Reports whether "pass"; returns it. */
extern bool ok(bool pass, const char *format,...) __attribute__((format(printf, 2, 3)));
extern bool is_int(int64_t got, int64_t expected, const char *format,...)
			__attribute__((format(printf, 3, 4)));
extern bool is_str(const char *got, const char *expected, const char *format,...)
			__attribute__((format(printf, 3, 4)));

/* Prints a line of explanation on standard error. */
extern void diag(const char *format,...) __attribute__((format(printf, 1, 2)));

/* Prints the plan; returns the exit status. */
extern int	done(void);

#endif							/* TAP_H */
