/*-------------------------------------------------------------------------
 *
 * zk_names.c
 *		Looks up the servers' names before the library does.
 *
 * The library resolves names with its process-wide mutex held, so a name service that
 * does not answer would block all other clients of the process.  Therefore the names
 * are looked up here first, without the mutex.  The library repeats the lookups after
 * the name service has answered.
 *
 * zkl_zk_names_answered() is called only on the I/O thread, and blocks for as long as
 * the resolver does.
 *
 *-------------------------------------------------------------------------
 */
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "log.h"
#include "zk_library.h"

typedef bool (*HostTest) (const char *host);

static int
resolve(const char *host, int flags)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	struct addrinfo *addresses = NULL;
	int			rc;

	hints.ai_flags = flags;
	rc = getaddrinfo(host, NULL, &hints, &addresses);
	if (rc == 0)
		freeaddrinfo(addresses);
	return rc;
}

static bool
is_address(const char *host)
{
	return resolve(host, AI_NUMERICHOST) == 0;
}

/* Returns whether the name service answers, even that the name does not exist. */
static bool
is_answered(const char *host)
{
	int			rc = is_address(host) ? 0 : resolve(host, 0);

	if (rc != 0)
		zkl_log_note_host_io(host, gai_strerror(rc));
	return rc != EAI_AGAIN && rc != EAI_SYSTEM;
}

/* Returns whether all hosts pass the test. */
static bool
all_hosts(const char *connect_string, HostTest test)
{
	char	   *hosts = strndup(connect_string, strcspn(connect_string, "/"));
	char	   *save = NULL;
	bool		passed = hosts != NULL;

	for (char *host = hosts ? strtok_r(hosts, ",", &save) : NULL; host && passed;
		 host = strtok_r(NULL, ",", &save))
	{
		char	   *port = strrchr(host, ':');

		if (port)
			*port = '\0';
		if (host[0] == '[' && host[strlen(host) - 1] == ']')
		{
			host[strlen(host) - 1] = '\0';
			host++;
		}
		passed = test(host);
	}
	free(hosts);
	return passed;
}

bool
zkl_zk_names_answered(const char *connect_string)
{
	return all_hosts(connect_string, is_answered);
}

bool
zkl_zk_has_names(const char *connect_string)
{
	return !all_hosts(connect_string, is_address);
}
