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

#include "access/parallel.h"
#include "access/xact.h"
#include "utils/acl.h"
#include "utils/builtins.h"

#include "backend/base/settings.h"
#include "backend/base/syntax.h"
#include "compat.h"
#include "recipe/recipe.h"

char	   *zklock_connect_string = "";
char	   *zklock_root = "/zklock";
int			zklock_session_timeout = 10000;
int			zklock_connect_timeout = 10000;
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
	GUC_check_errdetail("The value must be an absolute znode path of at most 1024 bytes, not \"/\" itself, without a trailing slash, and in UTF-8 without characters that ZooKeeper refuses.");
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

/* One of "text", "number" and "flag" is the variable; its initial value is the default. */
typedef struct Setting
{
	const char *name;
	const char *description;
	const char *details;
	GucContext	context;
	int			flags;

	char	  **text;
	GucStringCheckHook check_text;
	GucStringAssignHook assign_text;

	int		   *number;
	int			min;
	int			max;
	const struct config_enum_entry *options;	/* or NULL: any number of the range */
	void		(*assign_number) (int newval, void *extra);

	bool	   *flag;
} Setting;

static const Setting settings[] = {
	{"zklock.connect_string",
		"Sets the ZooKeeper ensemble that keeps the locks.",
		"The form is host:port[,host:port...][/chroot]. If the value is empty, no locks can be acquired.",
		PGC_SUSET, 0,
		.text = &zklock_connect_string,
		.check_text = check_connect_string,
	.assign_text = assign_session_string},
	{"zklock.root",
		"Sets the znode below which zklock keeps all its znodes.",
		NULL,
		PGC_SUSET, 0,
		.text = &zklock_root,
		.check_text = check_root,
	.assign_text = assign_session_string},
	{"zklock.session_timeout",
		"Sets how long the ensemble keeps the locks of a backend that sends no heartbeats.",
		"The ensemble may grant a different timeout, which then applies.",
		PGC_SUSET, GUC_UNIT_MS,
		.number = &zklock_session_timeout,
		.min = 100,
		.max = INT_MAX / 8,
	.assign_number = assign_session_number},
	{"zklock.connect_timeout",
		"Sets how long a call waits for a usable ZooKeeper session.",
		NULL,
		PGC_USERSET, GUC_UNIT_MS,
		.number = &zklock_connect_timeout,
		.min = 1,
	.max = INT_MAX},
	{"zklock.acl",
		"Sets which clients may change the znodes that zklock creates.",
		"\"creator\" requires zklock.auth_file; everybody can still read the znodes.",
		PGC_SUSET, 0,
		.number = &zklock_acl,
		.options = acl_options,
	.assign_number = assign_session_number},
	{"zklock.auth_file",
		"Sets the file that contains the credentials: digest user:password.",
		"The file must not be accessible by group or others.",
		PGC_SUSET, GUC_SUPERUSER_ONLY,
		.text = &zklock_auth_file,
	.assign_text = assign_session_string},
	{"zklock.log_min_messages",
		"Sets the lowest level of ZooKeeper client messages that are written to the server log.",
		NULL,
		PGC_SUSET, 0,
		.number = &log_min_messages_level,
		.options = log_options,
	.assign_number = assign_log_level},
	/* Only if the client library has TLS, so that the settings never exist without effect. */
#ifdef ZKLOCK_HAVE_TLS
	{"zklock.tls_ca_file",
		"Sets the file with the CA certificates of the ensemble's servers.",
		"The format is PEM. The connection is encrypted if zklock.tls_cert_file and zklock.tls_key_file are set as well.",
		PGC_SUSET, GUC_SUPERUSER_ONLY,
		.text = &zklock_tls_ca_file,
		.check_text = check_tls_file,
	.assign_text = assign_session_string},
	{"zklock.tls_cert_file",
		"Sets the file with the client certificate for the ensemble.",
		"The format is PEM; intermediate certificates follow the client certificate.",
		PGC_SUSET, GUC_SUPERUSER_ONLY,
		.text = &zklock_tls_cert_file,
		.check_text = check_tls_file,
	.assign_text = assign_session_string},
	{"zklock.tls_key_file",
		"Sets the file with the private key for zklock.tls_cert_file.",
		"The format is PEM, without a passphrase. The file must not be accessible by group or others.",
		PGC_SUSET, GUC_SUPERUSER_ONLY,
		.text = &zklock_tls_key_file,
		.check_text = check_tls_file,
	.assign_text = assign_session_string},
#endif
	{"zklock.node_names",
		"Sets the naming convention of the lock znodes, which determines the other programs that can share the locks.",
		NULL,
		PGC_SUSET, 0,
		.number = &zklock_node_names,
		.options = node_names_options,
	.assign_number = assign_session_number},
	{"zklock.commit_check",
		"Sets how a commit verifies that the transaction's locks are still held.",
		NULL,
		PGC_SUSET, 0,
		.number = &zklock_commit_check,
	.options = commit_check_options},
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
		.max = 100000,
	.assign_number = assign_session_number},
	{"zklock.on_revoke",
		"Sets the reaction of a session if the release of a lock that it holds is requested.",
		NULL,
		PGC_USERSET, 0,
		.number = &on_revoke,
		.options = on_revoke_options,
	.assign_number = assign_on_revoke},
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
								   s->context, s->flags, s->check_text, s->assign_text, NULL);
	else if (s->options)
		DefineCustomEnumVariable(s->name, s->description, s->details, s->number, *s->number, s->options,
								 s->context, s->flags, NULL, s->assign_number, NULL);
	else if (s->number)
		DefineCustomIntVariable(s->name, s->description, s->details, s->number, *s->number, s->min, s->max,
								s->context, s->flags, NULL, s->assign_number, NULL);
	else
		DefineCustomBoolVariable(s->name, s->description, s->details, s->flag, *s->flag,
								 s->context, s->flags, NULL, NULL, NULL);
}

/* As PostgreSQL checks a value.  May leave a text in GUC_check_errdetail_string. */
static bool
is_valid(const Setting *s, const char *value)
{
	int			number;
	bool		flag;

	GUC_check_errdetail_string = NULL;
	if (s->text)
	{
		char	   *text = unconstify(char *, value);
		void	   *extra = NULL;

		return s->check_text == NULL || s->check_text(&text, &extra, PGC_S_TEST);
	}
	if (s->options)
	{
		const struct config_enum_entry *option = s->options;

		while (option->name && pg_strcasecmp(value, option->name) != 0)
			option++;
		return option->name != NULL;
	}
	if (s->number)
		return parse_int(value, &number, s->flags, NULL) && number >= s->min && number <= s->max;
	return parse_bool(value, &flag);
}

/*
 * Placeholders
 *
 * Before the library is loaded, PostgreSQL lets every role set any zklock.* setting, to
 * any value, and keeps the value as a placeholder.  When the setting is defined,
 * PostgreSQL discards a value that is invalid, or that the role may not set, with a
 * warning.  The setting would fall to its built-in default, which nobody has configured:
 * locks would be taken in a wrong place, or with wrong guarantees.  So the library is not
 * loaded.
 */

/* May the role that set this value set the parameters of superusers? */
static bool
is_privileged(const char *name, GucContext context, Oid role)
{
	return (context != PGC_USERSET && context != PGC_BACKEND) ||
		pg_parameter_aclcheck(name, role, ACL_SET) == ACLCHECK_OK;
}

/* NULL: no setting of this build. */
static const Setting *
find_setting(const char *name)
{
	for (int i = 0; i < (int) lengthof(settings); i++)
	{
		if (pg_strcasecmp(name, settings[i].name) == 0)
			return &settings[i];
	}
	return NULL;
}

/* The value is NULL if the placeholder had none. */
static void
check_value(const char *name, const char *value, GucContext context, Oid role)
{
	const Setting *setting = find_setting(name);

	if (value == NULL)
		return;
	if (!(setting && setting->context == PGC_USERSET) && !is_privileged(name, context, role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to set parameter \"%s\"", name),
				 errdetail("It was set in this session before the zklock library was loaded."),
				 errhint("Remove the setting from the session or from the options of the connection. With zklock in shared_preload_libraries such a setting is refused at once.")));
	if (setting && !is_valid(setting, value))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for parameter \"%s\": \"%s\"", name, value),
				 GUC_check_errdetail_string ? errdetail_internal("%s", GUC_check_errdetail_string) : 0,
				 errhint("Correct the value in the configuration file, or with ALTER DATABASE, ALTER ROLE or SET. Values of databases and roles apply to new sessions.")));
}

/* Checks the current value, the reset value, and those of outer transactions. */
static void
check_placeholder(const struct config_string *placeholder)
{
	const struct config_generic *gen = &placeholder->gen;

	check_value(gen->name, *placeholder->variable, gen->scontext, gen->srole);
	check_value(gen->name, placeholder->reset_val, gen->reset_scontext, gen->reset_srole);
	for (const GucStack *outer = gen->stack; outer; outer = outer->prev)
	{
		check_value(gen->name, outer->prior.val.stringval, outer->scontext, outer->srole);
		if (outer->state == GUC_SET_LOCAL)
			check_value(gen->name, outer->masked.val.stringval, outer->masked_scontext, outer->masked_srole);
	}
}

/* PostgreSQL sets no parameters then, and would discard every placeholder. */
static void
check_not_parallel(const char *name)
{
	if (IsInParallelMode())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("parameter \"%s\" cannot be set during a parallel operation", name),
				 errdetail("It was set before the zklock library was loaded, and the query that loads the library has parallel workers."),
				 errhint("Call a function of zklock, for example zk_session(), before the query, or add zklock to shared_preload_libraries.")));
}

/* Throws before anything is defined, so that the next call tries to load again. */
static void
check_placeholders(void)
{
	static const char prefix[] = "zklock.";
	int			n;
	struct config_generic **all = zklock_all_settings(&n);

	for (int i = 0; i < n; i++)
	{
		if (!(all[i]->flags & GUC_CUSTOM_PLACEHOLDER) ||
			pg_strncasecmp(all[i]->name, prefix, strlen(prefix)) != 0)
			continue;
		check_not_parallel(all[i]->name);
		check_placeholder((const struct config_string *) all[i]);
	}
}

/*
 * A parallel worker receives the values of its leader after it has loaded the library, so
 * what was configured since then must not fail its query.
 */
void
zklock_define_settings(void)
{
	if (!InitializingParallelWorker)
		check_placeholders();
	for (int i = 0; i < (int) lengthof(settings); i++)
		define_setting(&settings[i]);
	MarkGUCPrefixReserved("zklock");
}
