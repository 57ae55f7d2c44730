/*-------------------------------------------------------------------------
 *
 * settings.h
 *		The zklock.* settings.  Times are in milliseconds.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SETTINGS_H
#define ZKLOCK_SETTINGS_H

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

typedef enum ZklockOnRevoke
{
	ZKLOCK_ON_REVOKE_NOTICE,
	ZKLOCK_ON_REVOKE_IGNORE,
	ZKLOCK_ON_REVOKE_CANCEL
} ZklockOnRevoke;

typedef enum ZklockAcl
{
	ZKLOCK_ACL_WORLD,
	ZKLOCK_ACL_CREATOR
} ZklockAcl;

extern char *zklock_connect_string;
extern char *zklock_root;
extern int	zklock_session_timeout;
extern int	zklock_connect_timeout;
extern int	zklock_keep;
extern int	zklock_node_names;	/* ZklNodeNames */
extern int	zklock_commit_check;	/* ZklockCommitCheck */
extern int	zklock_stale_snapshot;	/* ZklockStaleSnapshot */
extern int	zklock_on_revoke;	/* ZklockOnRevoke; read by the I/O thread */
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

#endif							/* ZKLOCK_SETTINGS_H */
