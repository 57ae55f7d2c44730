/*-------------------------------------------------------------------------
 *
 * session_settings.c
 *		The settings that the ZooKeeper session was opened with.
 *
 * If they change, a new session is needed, but not while locks are held.  After a
 * reload of the configuration the session is then kept for further locks.  But SET,
 * or a function's SET clause, is meant for the next lock: there backend_session.c
 * raises an error.
 *
 * Called only by backend_session.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "backend/base/settings.h"
#include "backend/session/session_settings.h"
#include "compat.h"

static const char *const names[] = {
	"zklock.connect_string", "zklock.root", "zklock.acl", "zklock.auth_file",
	"zklock.tls_ca_file", "zklock.tls_cert_file", "zklock.tls_key_file",
	"zklock.node_names", "zklock.session_timeout", "zklock.max_locks"
};

/* A setting, and its value when the session was opened. */
typedef struct SessionSetting
{
	const struct config_generic *setting;	/* NULL: not in this build */
	char	   *value;
	bool		by_set;
} SessionSetting;

static SessionSetting opened[lengthof(names)];
static bool is_found = false;

/* At this count of changes the stored values were current. */
static unsigned changes_seen = 0;

/* Looked up once: settings are never moved. */
static void
find_settings(void)
{
	int			n;
	struct config_generic **all = zklock_all_settings(&n);

	for (int i = 0; i < n; i++)
		for (int k = 0; k < (int) lengthof(names); k++)
			if (strcmp(all[i]->name, names[k]) == 0)
				opened[k].setting = all[i];
	is_found = true;
}

static const char *
value_now(const SessionSetting *s)
{
	return GetConfigOption(s->setting->name, false, false);
}

static bool
is_by_set(const SessionSetting *s)
{
	return s->setting->source >= PGC_S_INTERACTIVE;
}

static bool
is_changed(const SessionSetting *s)
{
	return s->setting && s->value && strcmp(value_now(s), s->value) != 0;
}

void
zklock_note_session_settings(void)
{
	if (!is_found)
		find_settings();
	for (int k = 0; k < (int) lengthof(names); k++)
	{
		SessionSetting *s = &opened[k];
		char	   *old = s->value;

		if (s->setting == NULL)
			continue;
		s->value = MemoryContextStrdup(TopMemoryContext, value_now(s));
		s->by_set = is_by_set(s);
		if (old)
			pfree(old);
	}
	changes_seen = zklock_session_settings_changes;
}

bool
zklock_session_settings_changed(void)
{
	unsigned	changes = zklock_session_settings_changes;

	if (changes_seen == changes)
		return false;
	for (int k = 0; k < (int) lengthof(names); k++)
	{
		if (is_changed(&opened[k]))
			return true;
	}
	changes_seen = changes;
	return false;
}

const char *
zklock_session_settings_conflict(void)
{
	if (!zklock_session_settings_changed())
		return NULL;
	for (int k = 0; k < (int) lengthof(names); k++)
	{
		const SessionSetting *s = &opened[k];

		if (is_changed(s) && (s->by_set || is_by_set(s)))
			return s->setting->name;
	}
	return NULL;
}
