/*-------------------------------------------------------------------------
 *
 * views.c
 *		The rows of the views of locks, and of the functions beside them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>

#include "access/htup_details.h"
#include "common/string.h"
#include "datatype/timestamp.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "backend/base/holds.h"
#include "backend/base/names.h"
#include "backend/base/settings.h"
#include "backend/base/syntax.h"
#include "backend/lock/znodes.h"
#include "backend/session/errors.h"
#include "backend/session/session.h"
#include "recipe/recipe.h"
#include "sql/views.h"
#include "compat.h"

#define HELD_LOCKS_COLUMNS 8
#define SESSION_COLUMNS 7


/*
 * This session's own state, without the network
 */

/*
 * The script of an older version may have fewer columns: the first ones.  That of a newer version
 * may have more, for which this version has no values.
 */
static void
require_columns(ReturnSetInfo *rsinfo, int n)
{
	if (rsinfo->setDesc->natts > n)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a view of extension \"zklock\" has more columns than its library"),
				 errhint("Install the library of the version that pg_extension shows, and connect again. Add columns of your own in a view of your own.")));
}

static const char *const session_state_texts[] = {
	[ZKL_SESSION_CONNECTING] = "connecting",
	[ZKL_SESSION_CONNECTED] = "connected",
	[ZKL_SESSION_SUSPENDED] = "suspended",
	[ZKL_SESSION_EXPIRED] = "expired",
	[ZKL_SESSION_AUTH_FAILED] = "auth_failed"
};

static const char *
hold_state_text(const ZklockHold *hold)
{
	if (zkl_lock_is_lost(hold->lock))
		return "lost";
	if (zkl_session_state(zklock_session_current()) != ZKL_SESSION_CONNECTED)
		return "suspect";
	return "held";
}

/* Adds a row for the counts of one mode and level, if there are any. */
static void
put_hold(ReturnSetInfo *rsinfo, const ZklockHold *hold, const char *mode,
		 const char *level, int64 count)
{
	Datum		values[HELD_LOCKS_COLUMNS];
	bool		nulls[HELD_LOCKS_COLUMNS] = {false};

	if (count == 0)
		return;
	values[0] = CStringGetTextDatum(hold->kind == ZKLOCK_SEMAPHORE ? "semaphore" : "lock");
	values[1] = CStringGetTextDatum(zklock_given_name(hold->name.encoded));
	values[2] = CStringGetTextDatum(hold->kind == ZKLOCK_SEMAPHORE ? "permit" : mode);
	values[3] = CStringGetTextDatum(level);
	values[4] = Int64GetDatum(count);
	values[5] = Int64GetDatum(hold->token);
	values[6] = TimestampTzGetDatum(hold->acquired_at);
	values[7] = CStringGetTextDatum(hold_state_text(hold));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

PG_FUNCTION_INFO_V1(zklock_held_locks);

/* Each permit is a row; the view adds those of a semaphore. */
Datum
zklock_held_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	dlist_iter	iter;

	zklock_require_leader();
	InitMaterializedSRF(fcinfo, 0);
	require_columns(rsinfo, HELD_LOCKS_COLUMNS);
	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		CHECK_FOR_INTERRUPTS();
		if (hold->lock == NULL)
			continue;
		put_hold(rsinfo, hold, "shared", "session", hold->shared.session);
		put_hold(rsinfo, hold, "shared", "transaction", hold->shared.transaction);
		put_hold(rsinfo, hold, "exclusive", "session", hold->exclusive.session);
		put_hold(rsinfo, hold, "exclusive", "transaction", hold->exclusive.transaction);
	}
	return (Datum) 0;
}

static Datum
interval_of(int64 ms)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = ms * 1000;
	return IntervalPGetDatum(interval);
}

PG_FUNCTION_INFO_V1(zklock_session_info);

/* Returns one record; to the script of version 0.9 a set of one. */
Datum
zklock_session_info(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ZklSession *session = zklock_session_current();
	ZklSessionInfo info = {.state = ZKL_SESSION_CONNECTING};
	Datum		values[SESSION_COLUMNS] = {0};
	bool		nulls[SESSION_COLUMNS] = {false};
	TupleDesc	desc;

	zklock_require_leader();
	if (session)
		info = zkl_session_info(session);
	values[1] = CStringGetTextDatum(session ? session_state_texts[info.state] : "closed");
	if (info.key.id != 0)
	{
		values[0] = CStringGetTextDatum(psprintf("0x%llx",
												 (unsigned long long) info.key.id));
		values[2] = CStringGetTextDatum(info.server);
		values[3] = interval_of(info.session_timeout_ms);
		values[4] = interval_of(info.lease_ms);
		values[5] = TimestampTzGetDatum(GetCurrentTimestamp() -
										info.connected_ms * INT64CONST(1000));
	}
	else
		nulls[0] = nulls[2] = nulls[3] = nulls[4] = nulls[5] = true;
	values[6] = Int32GetDatum(info.n_locks);
	if (fcinfo->flinfo->fn_retset)
	{
		InitMaterializedSRF(fcinfo, 0);
		require_columns(rsinfo, SESSION_COLUMNS);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
		return (Datum) 0;
	}
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE || desc->natts > SESSION_COLUMNS)
		elog(ERROR, "zk_session() does not have the result type of its script");
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}


/*
 * zk_locks and zk_locks_of()
 *
 * All names and data come from other programs, and may be any bytes.  Displayed
 * text is valid in the database encoding, without characters that a terminal
 * interprets or hides.  Values that make no sense are NULL.
 */

/* Columns, as the extension's script defines them. */
enum
{
	COLUMN_KIND,
	COLUMN_NAME,
	COLUMN_MODE,
	COLUMN_GRANTED,
	COLUMN_KEPT,
	COLUMN_QUEUE_POSITION,
	COLUMN_TOKEN,
	COLUMN_SERVER,
	COLUMN_PID,
	COLUMN_DATNAME,
	COLUMN_USENAME,
	COLUMN_APPLICATION_NAME,
	COLUMN_CLIENT,
	COLUMN_SESSION_ID,
	COLUMN_REQUESTED_AT,
	COLUMN_ZNODE,
	N_COLUMNS
};

#define MS_PER_DAY INT64CONST(86400000)

/* Days since 1970: about 2,700 years. */
#define MAX_DAYS 1000000

typedef struct Row
{
	Datum		values[N_COLUMNS];
	bool		nulls[N_COLUMNS];
} Row;

static void
put(Row *row, int column, Datum value)
{
	row->values[column] = value;
	row->nulls[column] = false;
}


/*
 * Bytes from other programs
 */

/*
 * Returns bytes as text, palloc'd, without characters that a terminal interprets or hides.  Bytes that
 * cannot be converted become printable ASCII.
 */
static char *
text_of(const char *bytes, int length)
{
	char	   *copy = palloc(length + 1);
	char	   *text;

	memcpy(copy, bytes, length);
	zklock_mask_controls(copy, length);
	text = zklock_convert(copy, length, PG_UTF8, GetDatabaseEncoding());
	if (text)
	{
		pfree(copy);
		return text;
	}
	copy[length] = '\0';
	zklock_make_plain(copy);
	return copy;
}

static void
put_text(Row *row, int column, const char *bytes, int length)
{
	if (length > 0)
		put(row, column, CStringGetTextDatum(text_of(bytes, length)));
}

/*
 * Returns a name in the form in which our functions take it.  If none of them would
 * create this znode, or the name has characters that a terminal interprets or hides,
 * returns the name of the znode.
 */
static char *
display_name(const char *encoded)
{
	char	   *name = pstrdup(encoded);
	int			length = zklock_decode(name);
	char	   *again = palloc(ZKL_ENCODED_SIZE(length));
	char	   *display = NULL;

	zkl_encode_name(name, length, again);
	if (strcmp(again, encoded) == 0 && !zklock_mask_controls(name, length))
		display = zklock_convert(name, length, PG_UTF8, GetDatabaseEncoding());
	return display ? display : text_of(encoded, strlen(encoded));
}


/*
 * The holder or waiter
 */

static void
put_identity(Row *row, const ZklockEntry *entry)
{
	static const struct
	{
		const char *name;
		int			column;
	}			members[] = {
		{"server", COLUMN_SERVER},
		{"datname", COLUMN_DATNAME},
		{"usename", COLUMN_USENAME},
		{"application_name", COLUMN_APPLICATION_NAME},
	};
	char	   *pid = zklock_identity_member(entry->data, entry->data_len, "pid");

	for (int i = 0; i < (int) lengthof(members); i++)
	{
		char	   *value = zklock_identity_member(entry->data, entry->data_len, members[i].name);

		if (value)
			put_text(row, members[i].column, value, strlen(value));
	}
	if (pid && strtoint(pid, NULL, 10) > 0)
		put(row, COLUMN_PID, Int32GetDatum(strtoint(pid, NULL, 10)));
}

static bool
is_printable(const char *bytes, int length)
{
	for (int i = 0; i < length; i++)
		if (bytes[i] < 0x20 || bytes[i] > 0x7e)
			return false;
	return true;
}

/* By default Curator's data is an IP address; other data is chosen by the program. */
static void
put_foreign(Row *row, const ZklockEntry *entry)
{
	char		address[INET6_ADDRSTRLEN];
	int			family = entry->data_len == 4 ? AF_INET
		: entry->data_len == 16 ? AF_INET6 : AF_UNSPEC;

	if (entry->data_len == (int) strlen(ZKL_REVOKE_MESSAGE) &&
		memcmp(entry->data, ZKL_REVOKE_MESSAGE, entry->data_len) == 0)
		return;
	if (entry->maker == ZKL_MAKER_CURATOR && family != AF_UNSPEC &&
		!is_printable(entry->data, entry->data_len) &&
		inet_ntop(family, entry->data, address, sizeof(address)))
		put_text(row, COLUMN_SERVER, address, strlen(address));
	else
		put_text(row, COLUMN_APPLICATION_NAME, entry->data, entry->data_len);
}

static const char *const client_texts[] = {
	[ZKL_MAKER_ZKLOCK] = "zklock",
	[ZKL_MAKER_CURATOR] = "curator",
	[ZKL_MAKER_KAZOO] = "kazoo",
	[ZKL_MAKER_OTHER] = "other"
};

static const char *
mode_text(ZklMode mode)
{
	return mode == ZKL_MODE_NONE ? "permit"
		: mode == ZKL_MODE_SHARED ? "shared" : "exclusive";
}

/* Adds the columns that come from the node's Stat. */
static void
put_stat(Row *row, const ZklockEntry *entry)
{
	int64		epoch_ms = (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * MS_PER_DAY;

	put(row, COLUMN_TOKEN, Int64GetDatum(entry->token));
	if (entry->session_id != 0)
		put(row, COLUMN_SESSION_ID,
			CStringGetTextDatum(psprintf("0x%llx",
										 (unsigned long long) entry->session_id)));
	/* The time of an absurd clock would not fit into a timestamp. */
	if (entry->ctime_ms >= 0 && entry->ctime_ms / MS_PER_DAY < MAX_DAYS)
		put(row, COLUMN_REQUESTED_AT,
			TimestampTzGetDatum((entry->ctime_ms - epoch_ms) * INT64CONST(1000)));
}

/* The rows that a call returns. */
typedef struct Rows
{
	ReturnSetInfo *result;
	const char *name;			/* encoded; NULL: all */
	MemoryContext row_context;
} Rows;

static void
put_entry(const ZklockEntry *entry, void *arg)
{
	Rows	   *rows = arg;
	MemoryContext old = MemoryContextSwitchTo(rows->row_context);
	Row			row;

	memset(row.nulls, true, sizeof(row.nulls));
	put(&row, COLUMN_KIND, CStringGetTextDatum(entry->is_semaphore ? "semaphore" : "lock"));
	put(&row, COLUMN_NAME, CStringGetTextDatum(display_name(entry->name)));
	put(&row, COLUMN_MODE, CStringGetTextDatum(mode_text(entry->mode)));
	put(&row, COLUMN_GRANTED, BoolGetDatum(entry->position == 0));
	put(&row, COLUMN_KEPT, BoolGetDatum(entry->position == 0 && entry->maker == ZKL_MAKER_ZKLOCK &&
										zkl_is_kept(entry->data, entry->data_len)));
	if (entry->position > 0)
		put(&row, COLUMN_QUEUE_POSITION, Int32GetDatum(entry->position));
	put(&row, COLUMN_CLIENT, CStringGetTextDatum(client_texts[entry->maker]));
	put_text(&row, COLUMN_ZNODE, entry->path, strlen(entry->path));
	if (entry->is_readable)
	{
		put_stat(&row, entry);
		if (entry->maker == ZKL_MAKER_ZKLOCK)
			put_identity(&row, entry);
		else
			put_foreign(&row, entry);
	}
	tuplestore_putvalues(rows->result->setResult, rows->result->setDesc, row.values, row.nulls);
	MemoryContextSwitchTo(old);
	MemoryContextReset(rows->row_context);
}

static bool
put_all(ZklockReader *reader, void *arg)
{
	Rows	   *rows = arg;

	tuplestore_clear(rows->result->setResult);
	return zklock_read_queues(reader, false, rows->name, put_entry, rows) &&
		zklock_read_queues(reader, true, rows->name, put_entry, rows);
}

Datum
zklock_show_locks(FunctionCallInfo fcinfo, const ZklockName *name)
{
	const ZklockAction action = {
		.format = name ? "read the holders and waiters of \"%s\"" : "read the locks of the ensemble",
		.display = name ? name->display : NULL
	};
	Rows		rows = {.name = name ? name->encoded : NULL};
	int			n_denied;

	zklock_require_leader();
	InitMaterializedSRF(fcinfo, 0);
	rows.result = (ReturnSetInfo *) fcinfo->resultinfo;
	require_columns(rows.result, N_COLUMNS);
	rows.row_context = AllocSetContextCreate(CurrentMemoryContext, "zk_locks row",
											 ALLOCSET_DEFAULT_SIZES);
	n_denied = zklock_read_ensemble(&action, put_all, &rows);
	MemoryContextDelete(rows.row_context);
	/* An empty result for one name would mean that nobody holds it. */
	if (n_denied > 0)
		ereport(name && tuplestore_tuple_count(rows.result->setResult) == 0 ? ERROR : WARNING,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("could not read some znodes of locks: the ZooKeeper ensemble refused access"),
				 errdetail("Znodes that could not be read: %d.", n_denied),
				 errhint("Check the ACLs of the znodes below zklock.root, and zklock.auth_file.")));
	return (Datum) 0;
}

PG_FUNCTION_INFO_V1(zklock_server);

/* Returns the value of zk_locks.server for backends of this server. */
Datum
zklock_server(PG_FUNCTION_ARGS)
{
	if (!zklock_is_preloaded)
		zklock_report_not_preloaded(ERROR);
	PG_RETURN_TEXT_P(cstring_to_text(zklock_server_name()));
}
