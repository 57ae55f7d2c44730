/*-------------------------------------------------------------------------
 *
 * zk_names.c
 *		Resolves the servers' names into addresses.
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
static ZklClient *clients;		/* to be woken; linked by next_client */
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

/*
 * Stores what a lookup has found, and wakes the clients; not if a later one has found
 * something before.  Mutex held.
 */
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
		zkl_log_note_host_io(name->text, gai_strerror(rc));
	if (rc != 0 && !name->is_unresolved)
	{
		snprintf(line, sizeof(line), ":ZOO_ERROR@the name of server \"%.255s\" could not be resolved: %s",
				 name->text, gai_strerror(rc));
		zkl_log_keep_io(line);
	}
	name->is_unresolved = rc != 0;
	if (rc != 0)
		return;
	if (name->addresses)
		freeaddrinfo(name->addresses);
	name->addresses = addresses;
	name->known_ms = began_ms;
	for (ZklClient *client = clients; client; client = client->next_client)
		zkl_io_thread_want_pass(client->io_thread);
}

static void *
look_up_io(void *arg)
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
	if (lookup && zkl_io_thread_begin(&thread, look_up_io, lookup))
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
 * The list for the library
 */

typedef struct Addresses
{
	int			n;
	char	   *list[ZKL_MAX_SERVERS];
} Addresses;

static void
add_addresses(Addresses *all, const Name *name, const char *port)
{
	char		host[NI_MAXHOST];

	for (struct addrinfo *a = name->addresses; a && all->n < ZKL_MAX_SERVERS; a = a->ai_next)
		if (getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof(host), NULL, 0, NI_NUMERICHOST) == 0 &&
			asprintf(&all->list[all->n], "%s:%s", host, port) >= 0)
			all->n++;
}

/* Mutex held. */
static void
collect(ZklClient *client, Addresses *all)
{
	char	   *hosts = strndup(client->connect_string, strcspn(client->connect_string, "/"));
	char	   *save = NULL;

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
		if (name == NULL)
			continue;
		seek(name);
		add_addresses(all, name, port);
	}
	free(hosts);
}

/* A hash whose order differs from client to client. */
static uint32_t
rank(const char *address, uint32_t seed)
{
	uint32_t	hash = 2166136261u ^ seed;	/* FNV-1a, with a final mix of the bits */

	for (; *address; address++)
		hash = (hash ^ (unsigned char) *address) * 16777619u;
	hash = (hash ^ hash >> 16) * 0x85ebca6bu;
	hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
	return hash ^ hash >> 16;
}

static int
compare(const void *a, const void *b, void *seed)
{
	const char *address_a = *(char *const *) a;
	const char *address_b = *(char *const *) b;
	uint32_t	rank_a = rank(address_a, *(uint32_t *) seed);
	uint32_t	rank_b = rank(address_b, *(uint32_t *) seed);

	if (rank_a != rank_b)
		return rank_a < rank_b ? -1 : 1;
	return strcmp(address_a, address_b);
}

/* Joins the addresses, each of them once; NULL if there is none. */
static char *
join(const Addresses *all)
{
	char	   *text = NULL;
	size_t		size;
	FILE	   *out = all->n > 0 ? open_memstream(&text, &size) : NULL;

	for (int i = 0; i < all->n && out; i++)
		if (i == 0 || strcmp(all->list[i], all->list[i - 1]) != 0)
			fprintf(out, i == 0 ? "%s" : ",%s", all->list[i]);
	if (out && fclose(out) != 0)
	{
		free(text);
		text = NULL;
	}
	return text;
}

char *
zkl_zk_addresses(ZklClient *client)
{
	Addresses	all = {0};
	char	   *text;

	pthread_mutex_lock(&names_mutex);
	if (!client->awaits_names)
	{
		client->next_client = clients;
		clients = client;
		client->awaits_names = true;
	}
	collect(client, &all);
	pthread_mutex_unlock(&names_mutex);
	qsort_r(all.list, (size_t) all.n, sizeof(all.list[0]), compare, &client->seed);
	text = join(&all);
	for (int i = 0; i < all.n; i++)
		free(all.list[i]);
	return text;
}

void
zkl_zk_forget_client(ZklClient *client)
{
	ZklClient **link = &clients;

	pthread_mutex_lock(&names_mutex);
	while (*link && *link != client)
		link = &(*link)->next_client;
	if (*link)
		*link = client->next_client;
	pthread_mutex_unlock(&names_mutex);
}
