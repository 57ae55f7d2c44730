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

static pthread_mutex_t ring_mutex = PTHREAD_MUTEX_INITIALIZER;
static char ring[RING_LINES][RING_LINE_SIZE];
static unsigned ring_first;
static unsigned ring_count;
static unsigned tls_failures;
static char last_problem[RING_LINE_SIZE];

/*
 * The library's lines are "2026-01-31 12:00:00,000:pid:ZOO_WARN@function@123: text".
 * The time and the process id are dropped: PostgreSQL's log has them already.
 */
static ZklLogLevel
parse_line(const char *line, const char **text)
{
	static const struct
	{
		const char *mark;
		ZklLogLevel level;
	}			marks[] = {
		{":ZOO_ERROR@", ZKL_LOG_ERROR},
		{":ZOO_WARN@", ZKL_LOG_WARNING},
		{":ZOO_INFO@", ZKL_LOG_INFO},
		{":ZOO_DEBUG@", ZKL_LOG_DEBUG},
	};

	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
	{
		const char *found = strstr(line, marks[i].mark);

		if (found)
		{
			*text = found + strlen(marks[i].mark);
			return marks[i].level;
		}
	}
	*text = line;
	return ZKL_LOG_INFO;
}

/*
 * Stores a line's text.  The library says "errno=112 (Host is down)" when the server has closed
 * the connection, as it does when it ends.
 */
static ZklLogLevel
read_line(const char *line, char *out, size_t size)
{
	static const char before[] = "Socket ";
	const char *text;
	ZklLogLevel level = parse_line(line, &text);
	const char *server = strstr(text, before);

	snprintf(out, size, "%s", text);
	if (server && strstr(text, " errno=112("))
	{
		server += strlen(before);
		snprintf(out, size, "the server at %.*s closed the connection",
				 (int) strcspn(server, " "), server);
	}
	out[strcspn(out, "\n")] = '\0';
	return level;
}

/* Only the function's name shows it. */
static bool
is_tls_failure(const char *line)
{
	return strstr(line, ":ZOO_ERROR@init_ssl_") != NULL;
}

ZklLogLevel
zkl_log_level_of(const char *line)
{
	const char *text;

	return parse_line(line, &text);
}

void
zkl_log_count_io(const char *line)
{
	pthread_mutex_lock(&ring_mutex);
	if (is_tls_failure(line))
		tls_failures++;
	pthread_mutex_unlock(&ring_mutex);
}

void
zkl_log_keep_io(const char *line)
{
	zkl_log_count_io(line);
	pthread_mutex_lock(&ring_mutex);
	if (ring_count == RING_LINES)
	{
		ring_first = (ring_first + 1) % RING_LINES;
		ring_count--;
	}
	snprintf(ring[(ring_first + ring_count) % RING_LINES], RING_LINE_SIZE,
			 "%s", line);
	ring_count++;
	pthread_mutex_unlock(&ring_mutex);
}

bool
zkl_log_take(ZklLogLevel *level, char *line, size_t size)
{
	bool		found;

	pthread_mutex_lock(&ring_mutex);
	found = ring_count > 0;
	if (found)
	{
		*level = read_line(ring[ring_first], line, size);
		ring_first = (ring_first + 1) % RING_LINES;
		ring_count--;
	}
	pthread_mutex_unlock(&ring_mutex);
	return found;
}

/* The library's message about a host name does not contain the name. */
static bool
has_no_host(const char *line)
{
	return strstr(line, "getaddrinfo: ") != NULL;
}

void
zkl_log_note_problem_io(const char *line)
{
	pthread_mutex_lock(&ring_mutex);
	if (!has_no_host(line) || last_problem[0] == '\0')
		snprintf(last_problem, sizeof(last_problem), "%s", line);
	pthread_mutex_unlock(&ring_mutex);
}

void
zkl_log_note_host_io(const char *host, const char *why)
{
	char		line[RING_LINE_SIZE];

	snprintf(line, sizeof(line), ":ZOO_ERROR@the name of host \"%.256s\" cannot be resolved: %s",
			 host, why);
	zkl_log_note_problem_io(line);
}

/* Without "function@123: ", which the library's own messages begin with. */
void
zkl_log_last_problem(char *line, size_t size)
{
	const char *text;

	pthread_mutex_lock(&ring_mutex);
	(void) read_line(last_problem, line, size);
	pthread_mutex_unlock(&ring_mutex);
	text = line + strcspn(line, " @");
	if (*text != '@')
		return;
	text = strstr(text, ": ");
	if (text)
		memmove(line, text + 2, strlen(text + 2) + 1);
}

/*
 * If the library cannot use a TLS file, it logs that and tries again at once;
 * stream_write_io() slows this loop down.
 */
static void (*pass_line_io) (const char *line);

static ssize_t
stream_write_io(void *cookie, const char *bytes, size_t size)
{
	char		line[RING_LINE_SIZE];

	(void) cookie;
	snprintf(line, sizeof(line), "%.*s", (int) size, bytes);
	pass_line_io(line);
	if (is_tls_failure(line))
		usleep(TLS_PAUSE_US);
	return (ssize_t) size;
}

static FILE *stream;

static void
open_stream(void)
{
	static const cookie_io_functions_t functions = {.write = stream_write_io};

	stream = fopencookie(NULL, "w", functions);
}

FILE *
zkl_log_stream(void (*keep_io) (const char *line))
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pass_line_io = keep_io;
	pthread_once(&once, open_stream);
	return stream;
}

unsigned
zkl_tls_failures(void)
{
	unsigned	n;

	pthread_mutex_lock(&ring_mutex);
	n = tls_failures;
	pthread_mutex_unlock(&ring_mutex);
	return n;
}
