/*-------------------------------------------------------------------------
 *
 * settings.c
 *		The zklock.* settings.
 *
 * The settings of a ZooKeeper session are fixed for the life of a backend.  They are
 * PGC_SUSET with check hooks, because PostgreSQL refuses PGC_SU_BACKEND in ALTER DATABASE and
 * ALTER ROLE.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"

#include "backend/base/settings.h"
#include "backend/base/syntax.h"
#include "recipe/recipe.h"
#include "compat.h"

bool		zklock_is_preloaded = false;

char	   *zklock_connect_string = "";
char	   *zklock_root = "/zklock";
int			zklock_session_timeout = 10000;
int			zklock_ensemble_timeout = 10000;
int			zklock_keep_time = 0;
int			zklock_node_names = ZKL_NODE_NAMES_CURATOR;
int			zklock_commit_check = ZKLOCK_COMMIT_CHECK_LEASE;
int			zklock_stale_snapshot = ZKLOCK_STALE_SNAPSHOT_WARNING;
int			zklock_max_locks = 1000;
int			zklock_acl = ZKLOCK_ACL_WORLD;
char	   *zklock_auth_file = "";
char	   *zklock_tls_ca_file = "";
char	   *zklock_tls_cert_file = "";
char	   *zklock_tls_key_file = "";
bool		zklock_deadlock_detection = true;
bool		zklock_session_locks = true;

static int	client_log_level = ZKL_LOG_WARNING;

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

/*
 * Refuses SET, and the SET clauses of functions, for the settings that are fixed.  PGC_S_TEST
 * checks a value that later sessions get.
 */
static bool
can_be_set(GucSource source)
{
	if (source < PGC_S_INTERACTIVE || source == PGC_S_TEST)
		return true;
	GUC_check_errcode(ERRCODE_CANT_CHANGE_RUNTIME_PARAM);
	GUC_check_errdetail("It cannot be set after connection start.");
	GUC_check_errhint("Set it for the server, the database or the role, or in the options of a superuser's connection.");
	return false;
}

/*
 * A changed configuration file is for later sessions: a backend keeps its values.  ALTER SYSTEM
 * has the same source; it writes the text that it was given.  A parallel worker takes the values
 * of its leader.
 */
static bool
keeps_value(GucSource source)
{
	return IsUnderPostmaster && !InitializingParallelWorker && source <= PGC_S_FILE;
}

static bool
fix_text(char **newval, const char *present, GucSource source)
{
	if (keeps_value(source) && strcmp(*newval, present) != 0)
	{
		char	   *kept = guc_strdup(LOG, present);

		if (!kept)
			return false;
		guc_free(*newval);
		*newval = kept;
	}
	return can_be_set(source);
}

static bool
fix_number(int *newval, int present, GucSource source)
{
	if (keeps_value(source))
		*newval = present;
	return can_be_set(source);
}

/* The check hook of a fixed setting whose values need no other check. */
#define FIXED(check, type, fix, variable) \
static bool \
check(type *newval, void **extra, GucSource source) \
{ \
	return fix(newval, variable, source); \
}

FIXED(check_session_timeout, int, fix_number, zklock_session_timeout)
FIXED(check_node_names, int, fix_number, zklock_node_names)
FIXED(check_max_locks, int, fix_number, zklock_max_locks)
FIXED(check_acl, int, fix_number, zklock_acl)
FIXED(check_auth_file, char *, fix_text, zklock_auth_file)

static bool
check_connect_string(char **newval, void **extra, GucSource source)
{
	if (**newval == '\0' || zklock_is_connect_string(*newval))
		return fix_text(newval, zklock_connect_string, source);
	GUC_check_errdetail("The value must have the form host:port[,host:port...][/chroot].");
	GUC_check_errhint("For example: zk1:2181,zk2:2181,zk3:2181/production");
	return false;
}

static bool
check_root(char **newval, void **extra, GucSource source)
{
	if (zklock_is_znode_path(*newval) && strlen(*newval) <= 1024)
		return fix_text(newval, zklock_root, source);
	GUC_check_errdetail("The value must be an absolute znode path of at most 1024 bytes, not \"/\" itself, without a trailing slash, and in UTF-8 without characters that ZooKeeper refuses.");
	return false;
}

#ifdef ZKLOCK_HAVE_TLS
static bool
fix_tls_file(char **newval, const char *present, GucSource source)
{
	if (zklock_is_tls_path(*newval))
		return fix_text(newval, present, source);
	GUC_check_errdetail("Paths of TLS files must not contain commas or control characters.");
	return false;
}

FIXED(check_tls_ca_file, char *, fix_tls_file, zklock_tls_ca_file)
FIXED(check_tls_cert_file, char *, fix_tls_file, zklock_tls_cert_file)
FIXED(check_tls_key_file, char *, fix_tls_file, zklock_tls_key_file)
#endif

static void
assign_log_level(int newval, void *extra)
{
	zkl_log_set_level((ZklLogLevel) newval);
}

/* One of "text", "number" and "flag" is the variable, and its initial value the default. */
typedef struct Setting
{
	const char *name;
	const char *description;
	const char *details;
	GucContext	context;
	int			flags;

	char	  **text;
	GucStringCheckHook check_text;

	int		   *number;
	int			min;
	int			max;
	const struct config_enum_entry *options;	/* or NULL: any number of the range */
	void		(*assign_number) (int newval, void *extra);
	bool		(*check_number) (int *newval, void **extra, GucSource source);

	bool	   *flag;
} Setting;

static const Setting settings[] = {
	{"zklock.connect_string",
		"Sets the ZooKeeper ensemble that keeps the locks.",
		"The form is host:port[,host:port...][/chroot]. If the value is empty, no locks can be acquired.",
		PGC_SUSET, 0,
		.text = &zklock_connect_string,
	.check_text = check_connect_string},
	{"zklock.root",
		"Sets the znode below which zklock keeps all its znodes.",
		NULL,
		PGC_SUSET, 0,
		.text = &zklock_root,
	.check_text = check_root},
	{"zklock.session_timeout",
		"Sets how long the ensemble keeps the locks of a backend that sends no heartbeats.",
		"The ensemble may grant a different timeout, which then applies.",
		PGC_SUSET, GUC_UNIT_MS,
		.number = &zklock_session_timeout,
		.min = 100,
		.max = INT_MAX / 8,
	.check_number = check_session_timeout},
	{"zklock.ensemble_timeout",
		"Sets how long a call waits for a usable ZooKeeper session.",
		NULL,
		PGC_USERSET, GUC_UNIT_MS,
		.number = &zklock_ensemble_timeout,
		.min = 1,
	.max = INT_MAX},
	{"zklock.keep_time",
		"Sets how long a session keeps the place of a released lock, in case it wants it again.",
		"0 turns this off.  A session gives the place up when another one wants the lock.",
		PGC_USERSET, GUC_UNIT_MS,
		.number = &zklock_keep_time,
	.max = INT_MAX},
	{"zklock.acl",
		"Sets which clients may change the znodes that zklock creates.",
		"\"creator\" requires zklock.auth_file; everybody can still read the znodes.",
		PGC_SUSET, 0,
		.number = &zklock_acl,
		.options = acl_options,
	.check_number = check_acl},
	{"zklock.auth_file",
		"Sets the file that contains the credentials: digest user:password.",
		"The file must not be accessible by group or others.",
		PGC_SUSET, GUC_SUPERUSER_ONLY,
		.text = &zklock_auth_file,
	.check_text = check_auth_file},
	{"zklock.client_log_level",
		"Sets the lowest level of ZooKeeper client messages that are written to the server log.",
		NULL,
		PGC_SUSET, 0,
		.number = &client_log_level,
		.options = log_options,
	.assign_number = assign_log_level},
	/* Only if the client library has TLS, so that the settings never exist without effect. */
#ifdef ZKLOCK_HAVE_TLS
	{"zklock.tls_ca_file",
		"Sets the file with the CA certificates of the ensemble's servers.",
		"The format is PEM. The connection is encrypted if zklock.tls_cert_file and zklock.tls_key_file are set as well.",
		PGC_SUSET, GUC_SUPERUSER_ONLY,
		.text = &zklock_tls_ca_file,
	.check_text = check_tls_ca_file},
	{"zklock.tls_cert_file",
		"Sets the file with the client certificate for the ensemble.",
		"The format is PEM; intermediate certificates follow the client certificate.",
		PGC_SUSET, GUC_SUPERUSER_ONLY,
		.text = &zklock_tls_cert_file,
	.check_text = check_tls_cert_file},
	{"zklock.tls_key_file",
		"Sets the file with the private key for zklock.tls_cert_file.",
		"The format is PEM, without a passphrase. The file must not be accessible by group or others.",
		PGC_SUSET, GUC_SUPERUSER_ONLY,
		.text = &zklock_tls_key_file,
	.check_text = check_tls_key_file},
#endif
	{"zklock.node_names",
		"Sets the naming convention of the lock znodes, which determines the other programs that can share the locks.",
		NULL,
		PGC_SUSET, 0,
		.number = &zklock_node_names,
		.options = node_names_options,
	.check_number = check_node_names},
	{"zklock.commit_check",
		"Sets how a commit verifies that the transaction's locks are still held.",
		NULL,
		PGC_SUSET, 0,
		.number = &zklock_commit_check,
	.options = commit_check_options},
	{"zklock.session_locks",
		"Allows locks and permits at session level.",
		"Turn it off for roles that connect through a pooler in transaction mode.",
		PGC_USERSET, 0,
	.flag = &zklock_session_locks},
	{"zklock.stale_snapshot",
		"Sets the reaction if a transaction's snapshot is older than a lock that it waited for.",
		NULL,
		PGC_USERSET, 0,
		.number = &zklock_stale_snapshot,
	.options = stale_snapshot_options},
	{"zklock.max_locks",
		"Sets the maximum number of lock znodes of a backend.",
		NULL,
		PGC_SUSET, 0,
		.number = &zklock_max_locks,
		.min = 1,
		.max = ZKL_MAX_NODES,
	.check_number = check_max_locks},
	{"zklock.deadlock_detection",
		"Detects deadlocks across servers.",
		"A session that waits for another server's lock for longer than deadlock_timeout publishes its wait and searches for a cycle.",
		PGC_SUSET, 0,
	.flag = &zklock_deadlock_detection},
};

static void
define_setting(const Setting *s)
{
	if (s->text)
		DefineCustomStringVariable(s->name, s->description, s->details, s->text, *s->text,
								   s->context, s->flags, s->check_text, NULL, NULL);
	else if (s->options)
		DefineCustomEnumVariable(s->name, s->description, s->details, s->number, *s->number, s->options,
								 s->context, s->flags, s->check_number, s->assign_number, NULL);
	else if (s->number)
		DefineCustomIntVariable(s->name, s->description, s->details, s->number, *s->number, s->min, s->max,
								s->context, s->flags, s->check_number, s->assign_number, NULL);
	else
		DefineCustomBoolVariable(s->name, s->description, s->details, s->flag, *s->flag,
								 s->context, s->flags, NULL, NULL, NULL);
}

/*
 * PostgreSQL replaces an invalid value in the configuration file by the default, with a
 * warning.  Locks would be taken in a place that nobody has configured, so the value is
 * checked once more, with an error that ends the start.
 */
void
zklock_define_settings(void)
{
	for (int i = 0; i < (int) lengthof(settings); i++)
	{
		const char *value = GetConfigOption(settings[i].name, true, false);
		char	   *configured = value ? pstrdup(value) : NULL;

		define_setting(&settings[i]);
		if (configured)
			(void) set_config_option(settings[i].name, configured, PGC_POSTMASTER, PGC_S_FILE,
									 GUC_ACTION_SET, false, FATAL, false);
	}
	MarkGUCPrefixReserved("zklock");
}

/*
 * Only in shared_preload_libraries are the settings checked when they are set, the hooks
 * installed before the first statement of a session, and the shared memory allocated.
 */
void
zklock_report_not_preloaded(int level)
{
	ereport(level,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("zklock is not in shared_preload_libraries"),
			 errdetail("No function of zklock works without it."),
			 errhint("Write shared_preload_libraries = 'zklock' in postgresql.conf, with the libraries that are there already, and restart the server.")));
}

void
zklock_refuse_worker(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
			 errmsg("zklock cannot be used in a parallel worker"),
			 errdetail("The locks of a session belong to its leader process."),
			 errhint("Declare functions that call zklock PARALLEL RESTRICTED or PARALLEL UNSAFE.")));
}
