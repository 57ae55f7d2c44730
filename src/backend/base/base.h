/*-------------------------------------------------------------------------
 *
 * base.h
 *		The settings, names of locks, the hold table, credentials.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BASE_H
#define ZKLOCK_BASE_H

#include "access/parallel.h"
#include "lib/ilist.h"
#include "utils/timestamp.h"

#include "backend/base/fence_rule.h"
#include "recipe/recipe.h"


/*
 * The zklock.* settings (settings.c).  Times are in milliseconds.
 */

typedef enum ZklockCommitCheck
{
	ZKLOCK_COMMIT_CHECK_OFF,
	ZKLOCK_COMMIT_CHECK_LEASE,
	ZKLOCK_COMMIT_CHECK_ALWAYS
} ZklockCommitCheck;

typedef enum ZklockStaleSnapshot
{
	ZKLOCK_STALE_SNAPSHOT_OFF,
	ZKLOCK_STALE_SNAPSHOT_WARNING,
	ZKLOCK_STALE_SNAPSHOT_ERROR
} ZklockStaleSnapshot;

typedef enum ZklockAcl
{
	ZKLOCK_ACL_WORLD,
	ZKLOCK_ACL_CREATOR
} ZklockAcl;

extern char *zklock_connect_string;
extern char *zklock_root;
extern int	zklock_session_timeout;
extern int	zklock_ensemble_timeout;
extern int	zklock_keep_time;
extern int	zklock_node_names;	/* ZklNodeNames */
extern int	zklock_commit_check;	/* ZklockCommitCheck */
extern int	zklock_stale_snapshot;	/* ZklockStaleSnapshot */
extern int	zklock_max_locks;
extern int	zklock_acl;			/* ZklockAcl */
extern char *zklock_auth_file;
extern char *zklock_tls_ca_file;	/* these three: empty without TLS */
extern char *zklock_tls_cert_file;
extern char *zklock_tls_key_file;
extern bool zklock_deadlock_detection;
extern bool zklock_session_locks;

/* Called from _PG_init(). */
extern void zklock_define_settings(void);

/* Is the library in shared_preload_libraries?  Set once, in the postmaster. */
extern bool zklock_is_preloaded;

/* Reports, at the given level, that the library is not preloaded. */
extern void zklock_report_not_preloaded(int level);


/*
 * Percent-encoded text: names of locks, and the holder in the data of its znodes (names.c)
 */

#define ZKLOCK_MAX_NAME_BYTES 512

typedef struct ZklockName
{
	char	   *encoded;		/* one component of a znode path */
	char	   *display;		/* for messages: as given, or encoded if the client's encoding does not have it */
	uint32		hash;			/* for hash tables of this backend */
} ZklockName;

/*
 * Memory for the strings of a name, so that a call with one name allocates nothing.  No
 * server encoding needs more than twice the bytes of UTF-8.
 */
typedef struct ZklockNameRoom
{
	char		display[2 * ZKLOCK_MAX_NAME_BYTES + 1];
	char		encoded[ZKL_ENCODED_SIZE(ZKLOCK_MAX_NAME_BYTES)];
} ZklockNameRoom;

/* Raises 22023 for an empty or too long name, 22021 for invalid bytes. */
extern void zklock_name_from_text(text *value, ZklockNameRoom *room, ZklockName *name);

/* The names of one call.  Contains pointers into itself: must not be copied. */
typedef struct ZklockNames
{
	int			n;				/* including repetitions */
	Datum	   *values;			/* the elements of an array; NULL: "name" is the only one */
	bool	   *nulls;
	int64	   *tokens;			/* of an array: NULL, or zklock_acquire() stores them here */
	ZklockName	name;
	ZklockNameRoom room;
} ZklockNames;

/*
 * Returns the first eight bytes of the SHA-256 hash of an encoded name, the same on all
 * servers.  It stands for the name in PostgreSQL's lock table and in wait reports.  May
 * throw.
 */
extern uint64 zklock_name_hash(const char *encoded, size_t length);

/* Converts text between encodings, palloc'd; NULL if impossible. */
extern char *zklock_convert(const char *text, int length, int from, int to);

/* Returns the name that was given for a znode's, in the database encoding; palloc'd. */
extern char *zklock_given_name(const char *encoded);

/*
 * Returns a name, valid until the next call.  Raises 22004 for NULL, and the errors of
 * zklock_name_from_text().  Checks for interrupts in an array, which can have a
 * hundred million elements.
 */
extern const ZklockName *zklock_names_get(ZklockNames *names, int i);

/*
 * Returns the data of this session's znodes, with the members pid, server, datname,
 * usename and application_name.  Palloc'd; only inside a transaction.
 */
extern char *zklock_identity(void);

/* Returns host:port of this server, as in "server". */
extern const char *zklock_server_name(void);

/*
 * Reads a member of any bytes; palloc'd, in UTF-8 unless another program wrote it.  NULL
 * if there is none, or if it is empty.  No errors.
 */
extern char *zklock_identity_member(const char *data, int length, const char *member);


/*
 * The hold table: what this session holds, by mode, level and nesting (holds.c)
 */

typedef enum ZklockScope
{
	ZKLOCK_SESSION,
	ZKLOCK_TRANSACTION
} ZklockScope;

typedef enum ZklockKind
{
	ZKLOCK_LOCK,
	ZKLOCK_SEMAPHORE
} ZklockKind;

/* How often one mode of one lock is held. */
typedef struct ZklockModeCounts
{
	int64		session;
	int64		transaction;	/* at all nest levels */
	bool		local;			/* the local lock is held in this mode */
} ZklockModeCounts;

/* How often a transaction of this nest level holds one lock. */
typedef struct ZklockLevel
{
	int			level;
	int64		shared;
	int64		exclusive;
} ZklockLevel;

/*
 * One lock that this session holds or is acquiring; or one permit, which is held
 * exclusively and counted once.
 */
typedef struct ZklockHold
{
	dlist_node	link;			/* in zklock_holds */
	struct ZklockHold *next;	/* older, with the same hash value */
	ZklockKind	kind;
	int			capacity;		/* capacity of the semaphore */
	bool		shown;			/* as a permit, to other backends (shared_memory.c) */
	ZklockName	name;
	uint64		key;			/* zklock_name_hash() */
	ZklockModeCounts shared;
	ZklockModeCounts exclusive;
	ZklockLevel *levels;		/* ascending; only those with counts */
	int			n_levels;
	int			max_levels;
	uint64		local_key;		/* of the local lock, while that is held */
	ZklMode		mode;			/* in which "lock" is held */
	ZklLock    *lock;			/* NULL when not held in the ensemble; set by holds.c */
	int64		token;
	TimestampTz acquired_at;
	int			revocations_reported;	/* revocations of "lock" */
	ZklockFenceMark fence;		/* of "lock"; see fence.c */
	bool		lost;			/* set by the last check in loss.c */
	int			pins;			/* calls that use this entry */
	uint64		acquired;		/* last call that acquired an array with it (locks.c) */
	uint64		released;		/* last call of zklock_release() that found it */
} ZklockHold;

/* For dlist_foreach(). */
extern dlist_head zklock_holds;

/* Returns the entry for a lock's name, or NULL.  Neither throws nor allocates. */
extern ZklockHold *zklock_hold_find(const ZklockName *name);

/*
 * Returns the entry for a name, pinned, with room for one more count; creates it if
 * missing.  May run out of memory; changes no count.
 */
extern ZklockHold *zklock_hold_prepare(const ZklockName *name);

/* Returns a new entry for a permit, pinned.  May run out of memory. */
extern ZklockHold *zklock_hold_prepare_permit(const ZklockName *name, int capacity);

/*
 * Returns the youngest entry for a permit of the semaphore, or the next older one than
 * "after"; NULL after the oldest.  Neither throws nor allocates.
 */
extern ZklockHold *zklock_hold_find_permit(const ZklockName *name,
										   const ZklockHold *after);

extern ZklockModeCounts *zklock_hold_counts(ZklockHold *hold, ZklMode mode);

/* Number of entries, and of those held in the ensemble. */
extern int	zklock_holds_entries(void);
extern int	zklock_holds_count(void);

extern _Noreturn void zklock_refuse_worker(void);

/*
 * SQL functions call this first.  Throws 55000 if the library is not preloaded, 25000 in a parallel
 * worker: its locks would end with the worker, and it would wait for the locks of its own
 * leader, which waits for the worker.
 */
static inline void
zklock_require_leader(void)
{
	if (unlikely(!zklock_is_preloaded))
		zklock_report_not_preloaded(ERROR);
	if (unlikely(IsParallelWorker()))
		zklock_refuse_worker();
}

/* Returns whether anything is held in the ensemble. */
extern bool zklock_holds_any(void);

/* Returns a lock that is counted at transaction level, or NULL. */
extern ZklockHold *zklock_holds_in_transaction(void);

/* The functions below neither throw nor allocate. */

/* Called when the ensemble has granted the lock, or an upgrade of it. */
extern void zklock_hold_granted(ZklockHold *hold, ZklLock *lock, ZklMode mode,
								TimestampTz now);

/* Called when the lock is no longer held in the ensemble. */
extern void zklock_hold_ended(ZklockHold *hold);

/* Adds one count; at transaction level, for this nest level. */
extern void zklock_hold_add(ZklockHold *hold, ZklMode mode, ZklockScope scope,
							int level);

/* Returns the strongest mode that is still counted. */
extern ZklMode zklock_hold_needed(const ZklockHold *hold);

/*
 * Called before all counts of this nest level and deeper are inherited or removed.
 * Returns whether there can be any.
 */
extern bool zklock_holds_end_level(int level);

/* Passes the counts of a committed subtransaction to its parent. */
extern void zklock_hold_inherit(ZklockHold *hold, int level);

/* Removes the transaction-level counts of this nest level and deeper. */
extern void zklock_hold_forget_levels(ZklockHold *hold, int level);

/* Removes the session-level counts. */
extern void zklock_hold_forget_session(ZklockHold *hold);

/* Frees an entry without counts, unless it is pinned. */
extern void zklock_hold_free_if_unused(ZklockHold *hold);

/* The names of locks in a message: the first one, and how many more. */

/* Of one name: as a znode it is longer than in any server encoding. */
#define ZKLOCK_LIST_NAME_BYTES ZKL_ENCODED_SIZE(ZKLOCK_MAX_NAME_BYTES)

typedef struct ZklockNameList
{
	int			n;				/* selects singular or plural */
	const char *name;			/* the first one */
} ZklockNameList;

/*
 * Adds a hold, whose name must stay as long as the list is used.  Permits of the first
 * semaphore are counted once.  A name that the client's encoding may lack is added as that
 * of the znode, because PostgreSQL would replace the error that has it by 22P05.
 */
extern void zklock_list_hold(ZklockNameList *list, const ZklockHold *hold);

/* Returns the name of a hold for a message.  Neither throws nor allocates. */
extern const char *zklock_hold_display(const ZklockHold *hold);

/*
 * Returns the text: "a" and 3 others.  Valid until the next call.  Does not allocate, so
 * that it can be used where an error would be a PANIC.
 */
extern const char *zklock_list_text(const ZklockNameList *list);


/*
 * The credentials of a session: a password, certificates (credentials.c)
 */

typedef struct ZklockCredentials
{
	char	   *digest;			/* "user:password", or NULL */
	char	   *tls;			/* the TLS files, in the form of the client library, or NULL */
} ZklockCredentials;

/*
 * Reads and checks the files that the settings name.  Throws F0000 if a file cannot be
 * used, without revealing its contents.  Allocates with palloc().
 */
extern void zklock_credentials_read(ZklockCredentials *credentials);

/* Erases the secrets and frees the memory. */
extern void zklock_credentials_wipe(ZklockCredentials *credentials);

/*
 * Stores the names of the TLS files that the settings name, in the form of the client library;
 * an empty text if there are none.  Returns false if they do not fit.
 */
extern bool zklock_tls_files(char *text, size_t size);

/* Can the client library read the files with these names, if there are any? */
extern bool zklock_tls_files_are_readable(const char *text);

#endif							/* ZKLOCK_BASE_H */
