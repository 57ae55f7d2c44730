/*-------------------------------------------------------------------------
 *
 * test_log.c
 *		Promises of the ring buffer for the client library's log lines.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe/zookeeper/io_thread.h"
#include "recipe/zookeeper/log.h"
#include "recipe/recipe.h"
#include "tap.h"

#define STAMP "2026-01-31 12:00:00,000:4711:"

static char line[600];

static void
taken(const char *expected, const char *promise)
{
	ok(zkl_log_take(line, sizeof(line)), "%s", promise);
	is_str(line, expected, "the line has the expected text");
}

static void
test_lines(void)
{
	ok(!zkl_log_take(line, sizeof(line)), "nothing can be taken before a line is logged");
	zkl_log_keep_io(STAMP "ZOO_ERROR@f@1: no server\n");
	zkl_log_keep_io(STAMP "ZOO_WARN@f@2: slow");
	zkl_log_keep_io(STAMP "ZOO_INFO@f@3: fine");
	zkl_log_keep_io(STAMP "ZOO_DEBUG@f@4: ping");
	zkl_log_keep_io("something else");
	taken("f@1: no server", "an error line is taken");
	taken("f@2: slow", "a warning line is taken");
	taken("f@3: fine", "an information line is taken");
	taken("f@4: ping", "a debug line is taken");
	taken("something else", "a line of another form is taken");
	ok(!zkl_log_take(line, sizeof(line)), "the buffer is empty after all lines are taken");
}

static void
test_levels(void)
{
	static const struct
	{
		const char *line;
		ZklLogLevel level;
	}			cases[] = {
		{STAMP "ZOO_ERROR@f@1: x", ZKL_LOG_ERROR},
		{STAMP "ZOO_WARN@f@1: x", ZKL_LOG_WARNING},
		{STAMP "ZOO_INFO@f@1: x", ZKL_LOG_INFO},
		{STAMP "ZOO_DEBUG@f@1: x", ZKL_LOG_DEBUG},
		{"x", ZKL_LOG_INFO},
	};
	const char *text;

	for (int i = 0; i < 5; i++)
		is_int(zkl_log_parse(cases[i].line, &text), cases[i].level, "the level of \"%s\"", cases[i].line);
}

/* Writes a line as the library does. */
static void
write_line(void (*keep_io) (const char *line), const char *text)
{
	fprintf(zkl_log_stream(keep_io), "%s%s\n", STAMP, text);
	fflush(zkl_log_stream(keep_io));
}

static void
drop_line(const char *dropped)
{
	(void) dropped;
}

static void
test_tls_failures(void)
{
	unsigned	before = zkl_tls_failures();
	int64_t		began;

	write_line(drop_line, "ZOO_ERROR@check_events@1: init_ssl_for_socket");
	write_line(drop_line, "ZOO_INFO@init_ssl_for_socket@2: fine");
	ok(zkl_tls_failures() == before, "a line of another function is no TLS failure");
	write_line(drop_line, "ZOO_ERROR@init_ssl_for_socket@3: error in ssl connect");
	ok(zkl_tls_failures() == before + 1, "an error of the TLS function is a TLS failure, also if its line is not kept");
	ok(!zkl_log_take(line, sizeof(line)), "only lines that the function keeps can be taken");
	began = zkl_io_thread_now();
	write_line(zkl_log_keep_io, "ZOO_ERROR@init_ssl_for_socket@4: again");
	taken("init_ssl_for_socket@4: again", "a line written to the stream is kept");
	ok(zkl_tls_failures() == before + 2, "a line written to the stream is counted");
	ok(zkl_io_thread_now() - began >= 200, "writing a line takes a while, because the library does not pause");
	ok(zkl_log_stream(zkl_log_keep_io) == zkl_log_stream(zkl_log_keep_io), "there is only one stream");
}

static void
test_full(void)
{
	char		text[32];
	int			n = 0;

	for (int i = 0; i < 100; i++)
	{
		snprintf(text, sizeof(text), "%d", i);
		zkl_log_keep_io(text);
	}
	while (zkl_log_take(line, sizeof(line)))
		n++;
	ok(n > 10 && n < 100, "a full buffer drops lines");
	is_str(line, "99", "a full buffer drops the oldest lines");
}

static void
test_long(void)
{
	char	   *longest = malloc(100000);
	char		small[8];

	memset(longest, 'x', 99999);
	longest[99999] = '\0';
	zkl_log_keep_io(longest);
	ok(zkl_log_take(line, sizeof(line)) && strlen(line) < sizeof(line),
	   "a long line is truncated");
	zkl_log_keep_io(longest);
	ok(zkl_log_take(small, sizeof(small)) && strlen(small) == 7,
	   "a line is truncated to the size of the reader's buffer");
	free(longest);
}

static void *
writer_main(void *arg)
{
	for (int i = 0; i < 2000; i++)
		zkl_log_keep_io(arg);
	return NULL;
}

static void
test_threads(void)
{
	pthread_t	writers[3];
	bool		whole = true;

	for (int i = 0; i < 3; i++)
		pthread_create(&writers[i], NULL, writer_main, "aaaaaaaaaaaaaaaa");
	for (int i = 0; i < 5000; i++)
		if (zkl_log_take(line, sizeof(line)))
			whole = whole && strcmp(line, "aaaaaaaaaaaaaaaa") == 0;
	for (int i = 0; i < 3; i++)
		pthread_join(writers[i], NULL);
	ok(whole, "lines written by several threads stay whole");
}

/* A line is noted as the reason of later errors, even if it is not kept. */
static void
test_problems(void)
{
	zkl_log_last_problem(line, sizeof(line));
	is_str(line, "", "no problem is known at first");
	zkl_log_note_problem_io(STAMP "ZOO_WARN@f@7: no server: refused\n");
	zkl_log_last_problem(line, sizeof(line));
	is_str(line, "no server: refused", "a problem is known without the function");
	zkl_log_note_problem_io(":ZOO_ERROR@the name of server \"zk1.invalid\" could not be resolved: unknown");
	zkl_log_last_problem(line, sizeof(line));
	is_str(line, "the name of server \"zk1.invalid\" could not be resolved: unknown", "a text without a function is kept whole");
	zkl_log_note_problem_io("");
	zkl_log_last_problem(line, sizeof(line));
	is_str(line, "", "a problem ends");
}

int
main(void)
{
	test_problems();
	test_lines();
	test_levels();
	test_tls_failures();
	test_full();
	test_long();
	test_threads();
	return done();
}
