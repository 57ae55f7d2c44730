/*-------------------------------------------------------------------------
 *
 * log.c
 *		A ring buffer for the client library's log lines.
 *
 * The library's log callback has no context and is called on several threads, so the
 * process has one buffer.  Writers never wait for the reader: a full buffer drops its
 * oldest line.  Allocates nothing except the stream.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "log.h"

#define RING_LINES 32
#define RING_LINE_SIZE 512
#define TLS_PAUSE_US 250000

/* Guards everything here but the count of failures, which is atomic. */
static pthread_mutex_t ring_mutex = PTHREAD_MUTEX_INITIALIZER;
static char ring[RING_LINES][RING_LINE_SIZE];
static unsigned n_kept;
static unsigned n_taken;		/* or dropped */
static char last_problem[RING_LINE_SIZE];
static unsigned tls_failures;

/*
 * The library's lines are "2026-01-31 12:00:00,000:pid:ZOO_WARN@function@123: text".
 * The time and the process id are dropped: PostgreSQL's log has them already.
 */
ZklLogLevel
zkl_log_parse(const char *line, const char **text)
{
	static const char *const marks[] = {
		[ZKL_LOG_ERROR] = ":ZOO_ERROR@",
		[ZKL_LOG_WARNING] = ":ZOO_WARN@",
		[ZKL_LOG_INFO] = ":ZOO_INFO@",
		[ZKL_LOG_DEBUG] = ":ZOO_DEBUG@",
	};

	for (ZklLogLevel level = ZKL_LOG_ERROR; level <= ZKL_LOG_DEBUG; level++)
	{
		const char *found = strstr(line, marks[level]);

		if (found)
		{
			*text = found + strlen(marks[level]);
			return level;
		}
	}
	*text = line;
	return ZKL_LOG_INFO;
}

/* Stores a line's text. */
static void
copy_line(const char *line, char *out, size_t size)
{
	const char *text;

	(void) zkl_log_parse(line, &text);
	snprintf(out, size, "%s", text);
	out[strcspn(out, "\n")] = '\0';
}

/* Only the function's name shows it. */
static bool
is_tls_failure(const char *line)
{
	return strstr(line, ":ZOO_ERROR@init_ssl_") != NULL;
}

unsigned
zkl_tls_failures(void)
{
	return __atomic_load_n(&tls_failures, __ATOMIC_RELAXED);
}

void
zkl_log_keep_io(const char *line)
{
	pthread_mutex_lock(&ring_mutex);
	if (n_kept - n_taken == RING_LINES)
		n_taken++;
	snprintf(ring[n_kept++ % RING_LINES], RING_LINE_SIZE, "%s", line);
	pthread_mutex_unlock(&ring_mutex);
}

bool
zkl_log_take(char *line, size_t size)
{
	bool		found;

	pthread_mutex_lock(&ring_mutex);
	found = n_taken != n_kept;
	if (found)
		copy_line(ring[n_taken++ % RING_LINES], line, size);
	pthread_mutex_unlock(&ring_mutex);
	return found;
}

void
zkl_log_note_problem_io(const char *line)
{
	pthread_mutex_lock(&ring_mutex);
	snprintf(last_problem, sizeof(last_problem), "%s", line);
	pthread_mutex_unlock(&ring_mutex);
}

/* Without "function@123: ", which the library's own messages begin with. */
void
zkl_log_last_problem(char *line, size_t size)
{
	const char *text;

	pthread_mutex_lock(&ring_mutex);
	copy_line(last_problem, line, size);
	pthread_mutex_unlock(&ring_mutex);
	text = line + strcspn(line, " @");
	text = *text == '@' ? strstr(text, ": ") : NULL;
	if (text)
		memmove(line, text + 2, strlen(text + 2) + 1);
}

static void (*pass_line_io) (const char *line);

/* If the library cannot use a TLS file, it logs that and tries again at once. */
static ssize_t
stream_write_io(void *cookie, const char *bytes, size_t size)
{
	char		line[RING_LINE_SIZE];

	(void) cookie;
	snprintf(line, sizeof(line), "%.*s", (int) size, bytes);
	pass_line_io(line);
	if (is_tls_failure(line))
	{
		__atomic_add_fetch(&tls_failures, 1, __ATOMIC_RELAXED);
		usleep(TLS_PAUSE_US);
	}
	return (ssize_t) size;
}

FILE *
zkl_log_stream(void (*keep_io) (const char *line))
{
	static const cookie_io_functions_t functions = {.write = stream_write_io};
	static FILE *stream;

	pass_line_io = keep_io;
	if (stream == NULL)
		stream = fopencookie(NULL, "w", functions);
	return stream;
}
