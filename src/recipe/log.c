/*-------------------------------------------------------------------------
 *
 * log.c
 *		A ring buffer for the client library's log lines.
 *
 * The library's log callback has no context and is called from several
 * threads, so there is one buffer in the process.  Writers never wait for the
 * reader: a full buffer drops its oldest line.  Must never allocate.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "log.h"
#include "recipe.h"

#define RING_LINES 32
#define RING_LINE_SIZE 512

static pthread_mutex_t ring_mutex = PTHREAD_MUTEX_INITIALIZER;
static char ring[RING_LINES][RING_LINE_SIZE];
static unsigned ring_first;
static unsigned ring_count;

/*
 * The library's lines read "2026-01-31 12:00:00,000:pid:ZOO_WARN@function@123:
 * text".  PostgreSQL's log has the time and the process id already.
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

void
zkl_log_keep_io(const char *line)
{
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
		const char *text;

		*level = parse_line(ring[ring_first], &text);
		snprintf(line, size, "%s", text);
		line[strcspn(line, "\n")] = '\0';
		ring_first = (ring_first + 1) % RING_LINES;
		ring_count--;
	}
	pthread_mutex_unlock(&ring_mutex);
	return found;
}

void
zkl_log_set_level(ZklLogLevel level)
{
	zkl_client_set_log_level(level);
}
