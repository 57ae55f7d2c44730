/*-------------------------------------------------------------------------
 *
 * zk_names.c
 *		Resolves the servers' names into addresses, and chooses the next one.
 *
 * The library is given addresses only, because it would resolve names in the middle of
 * an attempt to connect, with its mutex held.  (It needs no names for TLS: it checks only
 * who has signed a server's certificate.)
 *
 * Each lookup has a thread of its own, because the name service may be silent, for one
 * name or for all, or only for this lookup.  Nobody waits for it: clients use the addresses
 * that are known, also those of earlier lookups that the last one could not confirm.  So the
 * process keeps each name that it has ever used.
 *
 *-------------------------------------------------------------------------
 */
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "log.h"
#include "zk_library.h"

/*
 * The next lookup of a name begins at the earliest so long after the last one began; twice
 * as long for each lookup of the name that has no answer yet.
 */
#define LOOKUP_PAUSE_MS 1000
#define MAX_DOUBLINGS 10

typedef struct Name Name;

struct Name
{
	Name	   *next;
	struct addrinfo *addresses; /* NULL: none is known */
	bool		is_address;		/* it is never looked up */
	int			n_lookups;		/* running, each in a thread */
	bool		is_unresolved;	/* that has been logged */
	int64_t		sought_ms;		/* the last lookup began; 0: none */
	int64_t		known_ms;		/* the lookup began that has found "addresses" */
	char		text[];
};

/* A running lookup. */
typedef struct Lookup
{
	Name	   *name;
	int64_t		began_ms;
} Lookup;

static pthread_mutex_t names_mutex = PTHREAD_MUTEX_INITIALIZER;
static Name *names;
static int	n_lookups;


/*
 * Lookups
 */

static int
resolve(const char *host, int flags, struct addrinfo **addresses)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};

	hints.ai_flags = flags;
	return getaddrinfo(host, NULL, &hints, addresses);
}

/* Stores what a lookup has found; not if a later one has found something before.  Mutex held. */
static void
note_lookup(Name *name, int64_t began_ms, int rc, struct addrinfo *addresses)
{
	char		line[512];

	name->n_lookups--;
	if (began_ms < name->known_ms)
	{
		if (rc == 0)
			freeaddrinfo(addresses);
		return;
	}
	if (rc != 0)
	{
		snprintf(line, sizeof(line), ":ZOO_ERROR@the name of server \"%.255s\" could not be resolved: %s",
				 name->text, gai_strerror(rc));
		zkl_log_note_problem_io(line);
		if (!name->is_unresolved)
			zkl_log_keep_io(line);
	}
	name->is_unresolved = rc != 0;
	if (rc != 0)
		return;
	if (name->addresses)
		freeaddrinfo(name->addresses);
	name->addresses = addresses;
	name->known_ms = began_ms;
}

static void *
resolve_io(void *arg)
{
	Lookup	   *lookup = arg;
	const char *host = lookup->name->text;
	struct addrinfo *addresses = NULL;
	int			rc = resolve(host, AI_ADDRCONFIG, &addresses);

	if (rc == EAI_ADDRFAMILY)
		rc = resolve(host, 0, &addresses);
	pthread_mutex_lock(&names_mutex);
	note_lookup(lookup->name, lookup->began_ms, rc, addresses);
	pthread_mutex_unlock(&names_mutex);
	free(lookup);
	__atomic_sub_fetch(&n_lookups, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Starts a lookup if one is due.  Mutex held. */
static void
seek(Name *name)
{
	int64_t		now = zkl_io_thread_now();
	int64_t		pause_ms = LOOKUP_PAUSE_MS;
	Lookup	   *lookup;
	pthread_t	thread;

	for (int i = 0; i < name->n_lookups && i < MAX_DOUBLINGS; i++)
		pause_ms *= 2;
	if (name->is_address || (name->sought_ms != 0 && now < name->sought_ms + pause_ms))
		return;
	name->sought_ms = now;
	name->n_lookups++;
	__atomic_add_fetch(&n_lookups, 1, __ATOMIC_RELAXED);
	lookup = malloc(sizeof(Lookup));
	if (lookup)
		*lookup = (Lookup) {name, now};
	if (lookup && zkl_io_thread_begin(&thread, resolve_io, lookup))
	{
		pthread_detach(thread);
		return;
	}
	free(lookup);
	__atomic_sub_fetch(&n_lookups, 1, __ATOMIC_RELAXED);
	note_lookup(name, now, EAI_MEMORY, NULL);
}

int
zkl_zk_lookups(void)
{
	return __atomic_load_n(&n_lookups, __ATOMIC_ACQUIRE);
}

/* Finds or makes the entry of a name; NULL when out of memory.  Mutex held. */
static Name *
name_of(const char *host)
{
	Name	   *name = names;

	while (name && strcmp(name->text, host) != 0)
		name = name->next;
	if (name)
		return name;
	name = calloc(1, sizeof(Name) + strlen(host) + 1);
	if (name == NULL)
		return NULL;
	strcpy(name->text, host);
	name->is_address = resolve(host, AI_NUMERICHOST, &name->addresses) == 0;
	name->next = names;
	names = name;
	return name;
}


/*
 * The order of the servers
 */

typedef struct Server
{
	char		address[ZKL_ADDRESS_SIZE];
	uint64_t	rank;			/* the addresses are tried in this order, round and round */
} Server;

/* A hash whose order differs from client to client. */
static uint64_t
address_rank(const char *address, uint32_t seed)
{
	uint64_t	hash = zkl_hash(ZKL_HASH ^ seed, address, strlen(address));

	/* Mixes the bits. */
	hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdu;
	hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53u;
	return hash ^ hash >> 33;
}

/* Keeps the server that comes first behind the client's present one. */
static void
consider(const ZklClient *client, Server *next, const struct addrinfo *a, const char *port)
{
	char		host[ZKL_ADDRESS_SIZE - sizeof(":65535")];
	Server		server;

	if (getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof(host), NULL, 0, NI_NUMERICHOST) != 0)
		return;
	snprintf(server.address, sizeof(server.address), "%s:%.5s", host, port);
	server.rank = address_rank(server.address, client->seed);
	if (next->address[0] == '\0' ||
		server.rank - client->rank - 1 < next->rank - client->rank - 1)
		*next = server;
}

/* Mutex held. */
static Server
next_server(const ZklClient *client)
{
	char	   *hosts = strndup(client->connect_string, strcspn(client->connect_string, "/"));
	char	   *save = NULL;
	Server		next = {.rank = 0};

	for (char *host = hosts ? strtok_r(hosts, ",", &save) : NULL; host;
		 host = strtok_r(NULL, ",", &save))
	{
		char	   *port = strrchr(host, ':');
		Name	   *name;

		*port++ = '\0';
		if (host[0] == '[' && host[strlen(host) - 1] == ']')
		{
			host[strlen(host) - 1] = '\0';
			host++;
		}
		name = name_of(host);
		if (name)
			seek(name);
		for (struct addrinfo *a = name ? name->addresses : NULL; a; a = a->ai_next)
			consider(client, &next, a, port);
	}
	free(hosts);
	return next;
}

void
zkl_zk_describe_server(const ZklClient *client, char *out, size_t size)
{
	const char *port = strrchr(client->address, ':');
	bool		has_brackets = strchr(client->address, ':') != port;

	snprintf(out, size, has_brackets ? "[%.*s]%.6s" : "%.*s%.6s",
			 (int) (port - client->address), client->address, port);
}

bool
zkl_zk_next_server(ZklClient *client, bool *is_round)
{
	Server		next;

	pthread_mutex_lock(&names_mutex);
	next = next_server(client);
	pthread_mutex_unlock(&names_mutex);
	if (next.address[0] == '\0')
		return false;
	*is_round = next.rank <= client->rank;
	client->rank = next.rank;
	strcpy(client->address, next.address);
	return true;
}
