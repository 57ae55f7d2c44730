/*-------------------------------------------------------------------------
 *
 * zk_library.c
 *		The mutex around the client library, and what becomes of its log lines, which do not say
 *		whose they are: they belong to the client that the mutex is held for.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "log.h"
#include "zk_library.h"

static pthread_mutex_t library_mutex = PTHREAD_MUTEX_INITIALIZER;

/* The client that the mutex is held for, and whether this thread holds it. */
static ZklClient *driven;
static __thread bool is_driving;


static void
entered(ZklClient *client)
{
	driven = client;
	is_driving = true;
}

void
zkl_zk_enter(ZklClient *client)
{
	pthread_mutex_lock(&library_mutex);
	entered(client);
}

bool
zkl_zk_try_enter(ZklClient *client)
{
	if (pthread_mutex_trylock(&library_mutex) != 0)
		return false;
	entered(client);
	return true;
}

void
zkl_zk_leave(void)
{
	driven = NULL;
	is_driving = false;
	pthread_mutex_unlock(&library_mutex);
}

/* Is this thread in the library, for example in an answer's handler? */
bool
zkl_zk_is_driving(void)
{
	return is_driving;
}


/*
 * Log lines
 */

static int	log_level;

void
zkl_log_set_level(ZklLogLevel level)
{
	__atomic_store_n(&log_level, level, __ATOMIC_RELAXED);
	zoo_set_debug_level((ZooLogLevel) level);
}

/* What a warning or an error of the library tells. */
typedef enum LineKind
{
	LINE_PROBLEM,
	LINE_CONSEQUENCE,			/* an earlier line, perhaps ours about a silent server, says why */
	LINE_NOISE					/* nothing: the library is not called at the times that it expects */
} LineKind;

static LineKind
kind_of(const char *line)
{
	if (strstr(line, ": Exceeded deadline by ") != NULL)
		return LINE_NOISE;
	if (strstr(line, ": Delaying connection ") != NULL ||
		(driven && driven->connect_by_ms == ZKL_IO_THREAD_NEVER))
		return LINE_CONSEQUENCE;
	return LINE_PROBLEM;
}

/*
 * Returns whether a warning or an error of the library is kept.  The library's lines have no
 * context, but the driven client is known.  Each outage is logged with one line; the other
 * warnings until the session is connected again appear only at higher log levels.
 */
static bool
must_be_kept(const char *line)
{
	LineKind	kind = kind_of(line);

	if (kind == LINE_PROBLEM)
		zkl_log_note_problem_io(line);
	if (driven == NULL || __atomic_load_n(&log_level, __ATOMIC_RELAXED) > ZKL_LOG_WARNING)
		return true;
	if (driven->is_muted || kind == LINE_NOISE)
		return false;
	driven->is_muted = true;
	return true;
}

void
zkl_zk_log_io(const char *line)
{
	const char *text;

	if (zkl_log_parse(line, &text) > ZKL_LOG_WARNING || must_be_kept(line))
		zkl_log_keep_io(line);
}
