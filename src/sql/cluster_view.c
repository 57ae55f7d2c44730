/*-------------------------------------------------------------------------
 *
 * cluster_view.c
 *		The rows of the view zk_locks, and of zk_locks_of().
 *
 * All names and data come from other programs, and may be any bytes.  Displayed
 * text is valid in the database encoding, without characters that a terminal
 * interprets or hides.  Values that make no sense are NULL.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>

#include "catalog/namespace.h"
#include "common/string.h"
#include "datatype/timestamp.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "backend/base/holds.h"
#include "backend/base/identity.h"
#include "backend/base/syntax.h"
#include "backend/lock/queues.h"
#include "compat.h"
#include "sql/cluster_view.h"

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
	COLUMN_SINCE,
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

/* Converts UTF-8, with a NUL behind it, to the database encoding, palloc'd; NULL if impossible. */
static char *
from_utf8(const char *utf8, int length)
{
	int			encoding = GetDatabaseEncoding();
	int			size = length * MAX_CONVERSION_GROWTH + 1;
	char	   *result;
	Oid			conversion;

	if (memchr(utf8, '\0', length) ||
		pg_encoding_verifymbstr(PG_UTF8, utf8, length) != length)
		return NULL;
	if (encoding == PG_UTF8 || encoding == PG_SQL_ASCII || pg_is_ascii(utf8))
		return pnstrdup(utf8, length);
	conversion = FindDefaultConversionProc(PG_UTF8, encoding);
	if (!OidIsValid(conversion))
		return NULL;
	result = palloc(size);
	if (pg_do_encoding_conversion_buf(conversion, PG_UTF8, encoding,
									  (unsigned char *) utf8, length,
									  (unsigned char *) result, size,
									  true) != length)
		return NULL;
	return result;
}

/*
 * Same for any bytes, without characters that a terminal interprets or hides.  Bytes that
 * cannot be converted become printable ASCII.
 */
static char *
text_of(const char *bytes, int length)
{
	char	   *copy = palloc(length + 1);
	char	   *text;

	memcpy(copy, bytes, length);
	copy[length] = '\0';
	zklock_mask_controls(copy, length);
	text = from_utf8(copy, length);
	if (text)
	{
		pfree(copy);
		return text;
	}
	zklock_make_plain(copy);
	return copy;
}

static void
put_text(Row *row, int column, const char *bytes, int length)
{
	if (length > 0)
		put(row, column, CStringGetTextDatum(text_of(bytes, length)));
}

static int
hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes the name of a znode, palloc'd.  Returns the length. */
static int
decode_name(const char *encoded, char **name)
{
	int			n = 0;

	*name = palloc(strlen(encoded) + 1);
	for (const char *p = encoded; *p; p++)
		if (p[0] == '%' && hex_value(p[1]) >= 0 && hex_value(p[2]) >= 0)
		{
			(*name)[n++] = (char) (hex_value(p[1]) << 4 | hex_value(p[2]));
			p += 2;
		}
		else
			(*name)[n++] = *p;
	(*name)[n] = '\0';
	return n;
}

char *
zklock_given_name(const char *encoded)
{
	char	   *name;
	int			n = decode_name(encoded, &name);
	char	   *given = from_utf8(name, n);

	return given ? given : pstrdup(encoded);
}

/*
 * Returns a name in the form in which our functions take it.  If none of them would
 * create this znode, or the name has characters that a terminal interprets or hides,
 * returns the name of the znode.
 */
static char *
display_name(const char *encoded)
{
	int			length = strlen(encoded);
	char	   *name;
	int			n = decode_name(encoded, &name);
	char	   *again = palloc(ZKL_ENCODED_SIZE(length));
	char	   *display = NULL;

	zkl_encode_name(name, n, again);
	if (strcmp(again, encoded) == 0 && !zklock_mask_controls(name, n))
		display = from_utf8(name, n);
	pfree(again);
	pfree(name);
	return display ? display : text_of(encoded, length);
}


/*
 * The holder or waiter
 */

static void
put_identity(Row *row, const ZklockEntry *entry)
{
	ZklockIdentity *identity = zklock_identity_read(entry->data, entry->data_len);

	if (identity == NULL)
		return;
	put_text(row, COLUMN_SERVER, identity->server, strlen(identity->server));
	put_text(row, COLUMN_DATNAME, identity->datname, strlen(identity->datname));
	put_text(row, COLUMN_USENAME, identity->usename, strlen(identity->usename));
	put_text(row, COLUMN_APPLICATION_NAME, identity->application_name,
			 strlen(identity->application_name));
	if (identity->pid > 0)
		put(row, COLUMN_PID, Int32GetDatum(identity->pid));
	pfree(identity);
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

static const char *
client_text(ZklMaker maker)
{
	switch (maker)
	{
		case ZKL_MAKER_ZKLOCK:
			return "zklock";
		case ZKL_MAKER_CURATOR:
			return "curator";
		case ZKL_MAKER_KAZOO:
			return "kazoo";
		case ZKL_MAKER_OTHER:
			break;
	}
	return "other";
}

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
		put(row, COLUMN_SINCE,
			TimestampTzGetDatum((entry->ctime_ms - epoch_ms) * INT64CONST(1000)));
}

/* The rows that a call returns. */
typedef struct Rows
{
	ReturnSetInfo *result;
	const char *name;			/* encoded; NULL: all */
	MemoryContext row_context;
	int			n_denied;
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
	put(&row, COLUMN_KEPT, BoolGetDatum(false));
	if (entry->position > 0)
		put(&row, COLUMN_QUEUE_POSITION, Int32GetDatum(entry->position));
	put(&row, COLUMN_CLIENT, CStringGetTextDatum(client_text(entry->maker)));
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
	rows->n_denied = 0;
	if (rows->name == NULL)
		return zklock_read_all(reader, put_entry, rows, &rows->n_denied);
	return zklock_read_lock(reader, rows->name, put_entry, rows, &rows->n_denied) &&
		zklock_read_semaphore(reader, rows->name, put_entry, rows, &rows->n_denied);
}

/* Returns the entries of one name, or of all (NULL), as the result of a function. */
static void
show_locks(FunctionCallInfo fcinfo, const ZklockAction *action, const char *name)
{
	Rows		rows = {.name = name};

	InitMaterializedSRF(fcinfo, 0);
	rows.result = (ReturnSetInfo *) fcinfo->resultinfo;
	if (rows.result->setDesc->natts != N_COLUMNS)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("columns of view \"zk_locks\" have been changed"),
				 errhint("Add columns in a view of your own, and create the extension again.")));
	rows.row_context = AllocSetContextCreate(CurrentMemoryContext, "zk_locks row",
											 ALLOCSET_DEFAULT_SIZES);
	zklock_read_ensemble(action, put_all, &rows);
	MemoryContextDelete(rows.row_context);
	if (rows.n_denied > 0)
		ereport(WARNING,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("could not read some znodes of locks: the ZooKeeper ensemble refused access"),
				 errdetail("Znodes that could not be read: %d.", rows.n_denied),
				 errhint("Check the ACLs of the znodes below zklock.root, and zklock.auth_file.")));
}

PG_FUNCTION_INFO_V1(zklock_locks);

Datum
zklock_locks(PG_FUNCTION_ARGS)
{
	const ZklockAction action = {.format = "read the locks of the ensemble"};

	zklock_require_leader();
	show_locks(fcinfo, &action, NULL);
	return (Datum) 0;
}

void
zklock_show_locks_of(FunctionCallInfo fcinfo, const ZklockName *name)
{
	const ZklockAction action = {
		.format = "read the holders and waiters of \"%s\"",.display = name->display
	};

	show_locks(fcinfo, &action, name->encoded);
}

PG_FUNCTION_INFO_V1(zklock_server);

/* Returns the value of zk_locks.server for backends of this server. */
Datum
zklock_server(PG_FUNCTION_ARGS)
{
	zklock_require_preloaded();
	PG_RETURN_TEXT_P(cstring_to_text(zklock_server_name()));
}
