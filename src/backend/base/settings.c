/*-------------------------------------------------------------------------
 *
 * settings.c
 *		The zklock.* settings.
 *
 * Settings for the connection take effect when a session is opened;
 * zklock_session_ready() describes when an open session is replaced.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "backend/base/settings.h"
#include "backend/base/syntax.h"
#include "compat.h"
#include "recipe/recipe.h"

char	   *zklock_connect_string;
char	   *zklock_root;
int			zklock_session_timeout = 10000;
int			zklock_connect_timeout = 10000;
int			zklock_node_names = ZKL_NODE_NAMES_CURATOR;
int			zklock_commit_check = ZKLOCK_COMMIT_CHECK_LEASE;
int			zklock_stale_snapshot = ZKLOCK_STALE_SNAPSHOT_WARNING;
int			zklock_max_locks = 1000;
int			zklock_acl = ZKLOCK_ACL_WORLD;
char	   *zklock_auth_file;
char	   *zklock_tls_ca_file = "";
char	   *zklock_tls_cert_file = "";
char	   *zklock_tls_key_file = "";
bool		zklock_deadlock_detection = true;

unsigned	zklock_session_settings_changes = 0;

volatile sig_atomic_t zklock_on_revoke = ZKLOCK_ON_REVOKE_NOTICE;

static int	on_revoke = ZKLOCK_ON_REVOKE_NOTICE;

static int	log_min_messages_level = ZKL_LOG_WARNING;

static const struct config_enum_entry node_names_options[] = {
	{"curator", ZKL_NODE_NAMES_CURATOR, false},
	{"curator_mutex", ZKL_NODE_NAMES_CURATOR_MUTEX, false},
	{"kazoo", ZKL_NODE_NAMES_KAZOO, false},
	{NULL, 0, false}
};

static const struct config_enum_entry commit_check_options[] = {
	{"lease", ZKLOCK_COMMIT_CHECK_LEASE, false},
	{"always", ZKLOCK_COMMIT_CHECK_ALWAYS, false},
	{"off", ZKLOCK_COMMIT_CHECK_OFF, false},
	{NULL, 0, false}
};

static const struct config_enum_entry on_revoke_options[] = {
	{"notice", ZKLOCK_ON_REVOKE_NOTICE, false},
	{"ignore", ZKLOCK_ON_REVOKE_IGNORE, false},
	{"cancel", ZKLOCK_ON_REVOKE_CANCEL, false},
	{"terminate", ZKLOCK_ON_REVOKE_TERMINATE, false},
	{NULL, 0, false}
};

static const struct config_enum_entry stale_snapshot_options[] = {
	{"off", ZKLOCK_STALE_SNAPSHOT_OFF, false},
	{"warning", ZKLOCK_STALE_SNAPSHOT_WARNING, false},
	{"error", ZKLOCK_STALE_SNAPSHOT_ERROR, false},
	{NULL, 0, false}
};

static const struct config_enum_entry acl_options[] = {
	{"world", ZKLOCK_ACL_WORLD, false},
	{"creator", ZKLOCK_ACL_CREATOR, false},
	{NULL, 0, false}
};

static const struct config_enum_entry log_options[] = {
	{"debug", ZKL_LOG_DEBUG, false},
	{"info", ZKL_LOG_INFO, false},
	{"warning", ZKL_LOG_WARNING, false},
	{"error", ZKL_LOG_ERROR, false},
	{NULL, 0, false}
};

static bool
check_connect_string(char **newval, void **extra, GucSource source)
{
	bool		good = **newval == '\0' || zklock_is_connect_string(*newval);

	if (!good)
	{
		GUC_check_errdetail("The value must have the form host:port[,host:port...][/chroot].");
		GUC_check_errhint("For example: zk1:2181,zk2:2181,zk3:2181/production");
	}
	return good;
}

static bool
check_root(char **newval, void **extra, GucSource source)
{
	if (zklock_is_znode_path(*newval) && strlen(*newval) <= 1024)
		return true;
	GUC_check_errdetail("The value must be an absolute znode path of at most 1024 bytes, not \"/\" itself and without a trailing slash.");
	return false;
}

#ifdef ZKLOCK_HAVE_TLS
static bool
check_tls_file(char **newval, void **extra, GucSource source)
{
	if (zklock_is_tls_path(*newval))
		return true;
	GUC_check_errdetail("Paths of TLS files must not contain commas or control characters.");
	return false;
}
#endif

/* A setting that a session is opened with may have changed. */
static void
assign_session_string(const char *newval, void *extra)
{
	zklock_session_settings_changes++;
}

static void
assign_session_number(int newval, void *extra)
{
	zklock_session_settings_changes++;
}

static void
assign_log_level(int newval, void *extra)
{
	zkl_log_set_level((ZklLogLevel) newval);
}

static void
assign_on_revoke(int newval, void *extra)
{
	zklock_on_revoke = newval;
}

static void
define_connection_settings(void)
{
	DefineCustomStringVariable("zklock.connect_string",
							   "The ZooKeeper ensemble that keeps the locks.",
							   "host:port[,host:port...][/chroot]; empty: no locks can be acquired.",
							   &zklock_connect_string, "",
							   PGC_SUSET, 0, check_connect_string, assign_session_string, NULL);
	DefineCustomStringVariable("zklock.root",
							   "The znode below which everything is kept.",
							   NULL, &zklock_root, "/zklock",
							   PGC_SUSET, 0, check_root, assign_session_string, NULL);
	DefineCustomIntVariable("zklock.session_timeout",
							"How long the ensemble keeps the locks of a backend that sends no heartbeats.",
							"The ensemble may grant a different timeout, which then applies.",
							&zklock_session_timeout, 10000, 100, INT_MAX / 8,
							PGC_SUSET, GUC_UNIT_MS, NULL, assign_session_number, NULL);
	DefineCustomIntVariable("zklock.connect_timeout",
							"How long a call waits for a usable ZooKeeper session.",
							NULL, &zklock_connect_timeout, 10000, 1, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomEnumVariable("zklock.acl",
							 "Who may change the znodes that zklock creates.",
							 "\"creator\" requires zklock.auth_file; everybody can still read the znodes.",
							 &zklock_acl, ZKLOCK_ACL_WORLD, acl_options,
							 PGC_SUSET, 0, NULL, assign_session_number, NULL);
	DefineCustomStringVariable("zklock.auth_file",
							   "File that holds the credentials: digest user:password.",
							   "Must not be accessible by group or others.",
							   &zklock_auth_file, "",
							   PGC_SUSET, GUC_SUPERUSER_ONLY, NULL, assign_session_string, NULL);
	DefineCustomEnumVariable("zklock.log_min_messages",
							 "Lowest level of ZooKeeper client messages that are written to the server log.",
							 NULL, &log_min_messages_level, ZKL_LOG_WARNING, log_options,
							 PGC_SUSET, 0, NULL, assign_log_level, NULL);
}

/* Only if the client library has TLS, so that the settings never exist without effect. */
static void
define_tls_settings(void)
{
#ifdef ZKLOCK_HAVE_TLS
	DefineCustomStringVariable("zklock.tls_ca_file",
							   "File with the CA certificates of the ensemble's servers.",
							   "PEM. The connection is encrypted if zklock.tls_cert_file and zklock.tls_key_file are set as well.",
							   &zklock_tls_ca_file, "",
							   PGC_SUSET, GUC_SUPERUSER_ONLY, check_tls_file, assign_session_string, NULL);
	DefineCustomStringVariable("zklock.tls_cert_file",
							   "File with the client certificate for the ensemble.",
							   "PEM, followed by intermediate certificates.",
							   &zklock_tls_cert_file, "",
							   PGC_SUSET, GUC_SUPERUSER_ONLY, check_tls_file, assign_session_string, NULL);
	DefineCustomStringVariable("zklock.tls_key_file",
							   "File with the private key for zklock.tls_cert_file.",
							   "PEM, without a passphrase. Must not be accessible by group or others.",
							   &zklock_tls_key_file, "",
							   PGC_SUSET, GUC_SUPERUSER_ONLY, check_tls_file, assign_session_string, NULL);
#endif
}

static void
define_lock_settings(void)
{
	DefineCustomEnumVariable("zklock.node_names",
							 "Naming convention of the lock znodes: which other programs can share the locks.",
							 NULL, &zklock_node_names, ZKL_NODE_NAMES_CURATOR,
							 node_names_options,
							 PGC_SUSET, 0, NULL, assign_session_number, NULL);
	DefineCustomEnumVariable("zklock.commit_check",
							 "How a commit verifies that the transaction's locks are still held.",
							 NULL, &zklock_commit_check, ZKLOCK_COMMIT_CHECK_LEASE,
							 commit_check_options,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("zklock.stale_snapshot",
							 "What to do if a transaction's snapshot is older than a lock that it waited for.",
							 NULL, &zklock_stale_snapshot,
							 ZKLOCK_STALE_SNAPSHOT_WARNING, stale_snapshot_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.max_locks",
							"Maximum number of lock znodes of a backend.",
							NULL, &zklock_max_locks, 1000, 1, 100000,
							PGC_SUSET, 0, NULL, assign_session_number, NULL);
	DefineCustomEnumVariable("zklock.on_revoke",
							 "What a session does when the release of a lock that it holds is requested.",
							 NULL, &on_revoke, ZKLOCK_ON_REVOKE_NOTICE, on_revoke_options,
							 PGC_USERSET, 0, NULL, assign_on_revoke, NULL);
	DefineCustomBoolVariable("zklock.deadlock_detection",
							 "Detects deadlocks across servers.",
							 "A session that waits for another server's lock for longer than deadlock_timeout publishes its wait and searches for a cycle.",
							 &zklock_deadlock_detection, true,
							 PGC_SUSET, 0, NULL, NULL, NULL);
}

/*
 * Placeholders
 *
 * Before the library is loaded, PostgreSQL lets every role set any zklock.* setting, and
 * keeps the value as a placeholder.  When the setting is defined, PostgreSQL discards a
 * value that the role may not set, with a warning.  But by then the options of a
 * connection have replaced the configured value, which cannot be restored, and the
 * setting would fall to its built-in default.  So the library is not loaded.
 */

/* May the role that set this value set the parameters of superusers? */
static bool
is_privileged(const char *name, GucContext context, Oid role)
{
	return (context != PGC_USERSET && context != PGC_BACKEND) ||
		ZKLOCK_MAY_SET(name, role);
}

/* Checks the current value, the reset value, and those of outer transactions. */
static bool
is_placeholder_privileged(const struct config_generic *placeholder)
{
	const char *name = placeholder->name;

	if (!is_privileged(name, placeholder->scontext, placeholder->srole) ||
		!is_privileged(name, placeholder->reset_scontext, placeholder->reset_srole))
		return false;
	for (const GucStack *outer = placeholder->stack; outer; outer = outer->prev)
	{
		if (!is_privileged(name, outer->scontext, outer->srole) ||
			(outer->state == GUC_SET_LOCAL &&
			 !is_privileged(name, outer->masked_scontext, outer->masked_srole)))
			return false;
	}
	return true;
}

static bool
is_user_setting(const char *name)
{
	static const char *const user_settings[] = {
		"zklock.connect_timeout", "zklock.on_revoke", "zklock.stale_snapshot"
	};

	for (int i = 0; i < (int) lengthof(user_settings); i++)
	{
		if (pg_strcasecmp(name, user_settings[i]) == 0)
			return true;
	}
	return false;
}

/* Throws before anything is defined, so that the next call tries to load again. */
static void
refuse_placeholders(void)
{
	static const char prefix[] = "zklock.";
	int			n;
	struct config_generic **settings = zklock_all_settings(&n);

	for (int i = 0; i < n; i++)
	{
		const struct config_generic *setting = settings[i];

		if ((setting->flags & GUC_CUSTOM_PLACEHOLDER) == 0 ||
			pg_strncasecmp(setting->name, prefix, strlen(prefix)) != 0 ||
			is_user_setting(setting->name) || is_placeholder_privileged(setting))
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to set parameter \"%s\"", setting->name),
				 errdetail("It was set in this session before the zklock library was loaded."),
				 errhint("Remove the setting from the session or from the options of the connection. With zklock in shared_preload_libraries such a setting is refused at once.")));
	}
}

/* Throws, before anything is defined, if an unprivileged role has set a placeholder. */
void
zklock_define_settings(void)
{
	refuse_placeholders();
	define_connection_settings();
	define_tls_settings();
	define_lock_settings();
	MarkGUCPrefixReserved("zklock");
}
