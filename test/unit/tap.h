/*-------------------------------------------------------------------------
 *
 * tap.h
 *		The part of the Test Anything Protocol that the C tests need.
 *
 * A program calls these functions on one thread and ends with "return done();".  A failed
 * test names the file and the line that it was called from.  If the environment variable
 * ZKLOCK_ONLY is set, tests that pass count and show only if their name contains it: make
 * unit K=upgrade.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TAP_H
#define TAP_H

#include <stdbool.h>
#include <stdint.h>

/* Where a test is. */
#define HERE __FILE__, __LINE__

/* Reports whether "pass"; returns it. */
#define ok(...) ok_at(HERE, __VA_ARGS__)
#define is_int(...) is_int_at(HERE, __VA_ARGS__)
#define is_str(...) is_str_at(HERE, __VA_ARGS__)

extern bool ok_at(const char *file, int line, bool pass, const char *format,...)
			__attribute__((format(printf, 4, 5)));
extern bool is_int_at(const char *file, int line, int64_t got, int64_t expected, const char *format,...)
			__attribute__((format(printf, 5, 6)));
extern bool is_str_at(const char *file, int line, const char *got, const char *expected, const char *format,...)
			__attribute__((format(printf, 5, 6)));

/* Does ZKLOCK_ONLY ask for a test of this name? */
extern bool is_wanted(const char *name);

/*
 * Names what is tested from now on.  An assertion that fails in the code under test, and an
 * interrupt of a test that does not end, say it.
 */
extern void testing(const char *file, int line, const char *what);

/* Prints a line of explanation on standard error. */
extern void diag(const char *format,...) __attribute__((format(printf, 1, 2)));

/* Prints the plan; returns the exit status. */
extern int	done(void);

#endif							/* TAP_H */
