/*-------------------------------------------------------------------------
 *
 * settings.h
 *		The zklock.* settings (settings.c), and who may use zklock.  Times are in milliseconds.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SETTINGS_H
#define ZKLOCK_SETTINGS_H

#include "access/parallel.h"


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

/* Raises that this is a parallel worker. */
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

#endif							/* ZKLOCK_SETTINGS_H */
