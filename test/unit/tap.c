/*-------------------------------------------------------------------------
 *
 * tap.c
 *		The Test Anything Protocol for C.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tap.h"

static int	tests;
static int	failures;
static char now_testing[4096];

bool
is_wanted(const char *name)
{
	const char *only = getenv("ZKLOCK_ONLY");

	return only == NULL || strcasestr(name, only) != NULL;
}

static bool
report(const char *file, int line, bool pass, const char *format, va_list args)
{
	char		name[1024];

	vsnprintf(name, sizeof(name), format, args);
	if (pass && !is_wanted(name))
		return pass;
	tests++;
	if (!pass)
		failures++;
	printf("%s %d - %s\n", pass ? "ok" : "not ok", tests, name);
	fflush(stdout);
	if (!pass)
		diag("%s, line %d", file, line);
	return pass;
}

bool
ok_at(const char *file, int line, bool pass, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	report(file, line, pass, format, args);
	va_end(args);
	return pass;
}

bool
is_int_at(const char *file, int line, int64_t got, int64_t expected, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	report(file, line, got == expected, format, args);
	va_end(args);
	if (got != expected)
		diag("     got: %" PRId64 "\nexpected: %" PRId64, got, expected);
	return got == expected;
}

bool
is_str_at(const char *file, int line, const char *got, const char *expected, const char *format,...)
{
	bool		same = got && expected ? strcmp(got, expected) == 0 : got == expected;
	va_list		args;

	va_start(args, format);
	report(file, line, same, format, args);
	va_end(args);
	if (!same)
		diag("     got: %s\nexpected: %s", got ? got : "(null)",
			 expected ? expected : "(null)");
	return same;
}

/* Only what is allowed in a signal's handler. */
static void
say_where(int sig)
{
	if (write(STDERR_FILENO, now_testing, strlen(now_testing)) < 0)
		_exit(1);
	signal(sig, SIG_DFL);
	raise(sig);
}

void
testing(const char *file, int line, const char *what)
{
	if (now_testing[0] == '\0')
	{
		signal(SIGABRT, say_where);
		signal(SIGINT, say_where);
		signal(SIGTERM, say_where);
	}
	snprintf(now_testing, sizeof(now_testing), "# in the test of %s, line %d: %s\n", file, line, what);
}

/* Prints each line of the text as a TAP comment. */
void
diag(const char *format,...)
{
	char		text[4096];
	char	   *save;
	va_list		args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	for (char *line = strtok_r(text, "\n", &save); line;
		 line = strtok_r(NULL, "\n", &save))
		fprintf(stderr, "# %s\n", line);
}

int
done(void)
{
	printf("1..%d\n", tests);
	if (failures)
		diag("%d of %d failed", failures, tests);
	return failures ? 1 : 0;
}
