/*-------------------------------------------------------------------------
 *
 * fence.c
 *		Fencing: an earlier holder cannot commit after a later one has fenced.
 *
 * The table zklock_fences has the greatest token recorded for each lock.  A transaction
 * that fences first takes a heavyweight lock on the name until its end, in the mode in
 * which it holds the ZooKeeper lock, and only then reads the table.  So the row that it
 * reads is committed or its own, and no other holder can record a token before this
 * transaction ends.  This does not depend on snapshots, hence not on isolation levels.  It
 * needs no row, so shared holders can fence too.
 *
 * The statements run as the table's owner, as those of foreign keys do (ri_triggers.c), so
 * the caller needs no privilege on the table.  The owner is usually a superuser.  So
 * nothing that the caller can define is looked up: the search path is fixed.  And there
 * must be no trigger of others, because it would run as the owner.  What only the owner can
 * add to a table runs, as in VACUUM, in a security-restricted operation: functions in
 * indexes and constraints.  Policies do not apply.
 *
 * Rows are also written by others: the apply workers of logical replication,
 * pg_restore, an administrator.  The extension's triggers see all these writes, and no
 * write lowers or removes a recorded token.  The triggers are enabled ALWAYS, so
 * they fire in apply workers too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "tcop/utility.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "backend/base/syntax.h"
#include "backend/lock/lock.h"
#include "backend/transaction/internal.h"
#include "backend/transaction/transaction.h"
#include "compat.h"

/* A statement on the table, whose name is %1$s. */
typedef struct Statement
{
	const char *text;
	const char *nulls;			/* 'n' for a parameter that is not used */
} Statement;

static const Statement read_row = {
	.text = "SELECT token FROM ONLY %1$s WHERE lock = $1",
	.nulls = " nnn"
};

/*
 * Writes and returns nothing if the same token is recorded.  If a greater one is, returns
 * that, and the caller raises an error, which undoes what was written.
 */
static const Statement record_token = {
	.text = "INSERT INTO %1$s AS f (lock, token, fenced_at, fenced_by) VALUES ($1, $2, $3, $4) "
	"ON CONFLICT (lock) DO UPDATE SET (token, fenced_at, fenced_by) = "
	"ROW (greatest(f.token, $2), greatest(f.fenced_at, $3), $4) "
	"WHERE f.token <> $2 RETURNING token",
	.nulls = "    "
};

static const Statement remove_row = {
	.text = "DELETE FROM ONLY %1$s WHERE lock = $1",
	.nulls = " nnn"
};

static const Statement remove_old_rows = {
	.text = "WITH old AS MATERIALIZED ("
	"SELECT lock FROM ONLY %1$s WHERE fenced_at <= $3 FOR UPDATE SKIP LOCKED) "
	"DELETE FROM ONLY %1$s AS f USING old WHERE f.lock = old.lock",
	.nulls = "nn n"
};

/*
 * Shown as objsubid in pg_locks, as documented.  pg_advisory_lock() uses 1 and 2; the
 * local lock has another value.
 */
#define FENCE_LOCKTAG_FIELD4 0x5A46

/* A statement of ours runs, which the extension's triggers let pass. */
static bool own_write = false;

/* Locks a name until the end of the transaction. */
static void
lock_name(const ZklockName *name, LOCKMODE mode)
{
	ZklockAction action = {.format = "fence lock \"%s\"",.display = name->display};
	ErrorContextCallback context = {error_context_stack, zklock_name_action, &action};
	uint64		hash = zklock_name_hash(name->encoded, strlen(name->encoded));
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (hash >> 32),
						 (uint32) hash, FENCE_LOCKTAG_FIELD4);
	error_context_stack = &context;
	(void) LockAcquire(&tag, mode, false, false);
	error_context_stack = context.previous;
}

/*
 * Prepares a statement.  No lock keeps the owner of the schema from renaming it at any moment, and from
 * giving its name to another one, whose view or trigger would run as the owner of the table.
 */
static SPIPlanPtr
prepare(Relation fences, const Statement *statement)
{
	char	   *schema = get_namespace_name(RelationGetNamespace(fences));
	SPIPlanPtr	plan = SPI_prepare(psprintf(statement->text, quote_qualified_identifier(schema, ZKLOCK_FENCES)),
								   N_COLUMNS, zklock_fences_types);
	CachedPlanSource *source;
	bool		is_ours;
	ListCell   *cell;

	if (plan == NULL)
		elog(ERROR, "statement on table \"%s\" cannot be prepared", ZKLOCK_FENCES);
	source = linitial(SPI_plan_get_plan_sources(plan));
	is_ours = source->is_valid && source->relationOids != NIL;
	foreach(cell, source->relationOids)
		is_ours = is_ours && lfirst_oid(cell) == RelationGetRelid(fences);
	if (!is_ours)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("schema of table \"%s\" was renamed", ZKLOCK_FENCES),
				 errhint("Retry the transaction.")));
	return plan;
}

/*
 * Runs a statement, which sees what has been committed up to now.  Returns the number of
 * rows, and in *token that of the first row.
 */
static int64
run_as_owner(Relation fences, const Statement *statement, Datum *values, int64 *token)
{
	SPIPlanPtr	plan = prepare(fences, statement);
	bool		is_null;

	if (SPI_execute_snapshot(plan, values, statement->nulls,
							 GetLatestSnapshot(), InvalidSnapshot, false, true, 0) < 0)
		elog(ERROR, "statement on table \"%s\" failed", ZKLOCK_FENCES);
	if (token && SPI_processed > 0)
		*token = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
											 SPI_tuptable->tupdesc, 1, &is_null));
	return SPI_processed;
}

/*
 * Becomes the owner and runs a statement.  An error restores everything but own_write.  A loss that
 * ended the statement is raised as the caller: in the restricted operation it would not count.
 */
static int64
run(Relation fences, const Statement *statement, Datum *values, int64 *token)
{
	int			nest_level;
	Oid			user;
	int			context;
	int64		n;
	MemoryContext outer = CurrentMemoryContext;

	/* Only a function of an index or a constraint can get here while a statement runs. */
	if (own_write)
		elog(ERROR, "statement on table \"%s\" calls a function that fences", ZKLOCK_FENCES);
	nest_level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(RelationGetForm(fences)->relowner,
						   context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_RESTRICTED_OPERATION | SECURITY_NOFORCE_RLS);
	SPI_connect();
	own_write = true;
	PG_TRY();
	{
		n = run_as_owner(fences, statement, values, token);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		own_write = false;
		SetUserIdAndSecContext(user, context);
		if (!zklock_cancel_is_requested(ZKLOCK_CANCEL_LOSS))
			PG_RE_THROW();
		MemoryContextSwitchTo(outer);
		error = CopyErrorData();
		FlushErrorState();
		zklock_check_loss();
		ReThrowError(error);
	}
	PG_END_TRY();
	own_write = false;
	SPI_finish();
	SetUserIdAndSecContext(user, context);
	AtEOXact_GUC(false, nest_level);
	return n;
}


/*
 * SQL functions
 */

static _Noreturn void
raise_fenced_off(const ZklockName *name, int64 token, int64 recorded)
{
	ZklockNameList list = {.n = 1, .name = name->display};

	zklock_fail_transaction(&list);
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("lock \"%s\" was fenced off by a later holder", name->display),
			 errdetail("This session holds it with token " INT64_FORMAT "; token " INT64_FORMAT " is recorded in this database.",
					   token, recorded),
			 errhint("Release the lock, acquire it again, and retry the transaction. If the ZooKeeper ensemble was rebuilt empty, its tokens restarted: an administrator must call zk_fence_reset(%s).",
					 quote_literal_cstr(name->display))));
}

/* A role may have got its name in a database of another encoding. */
static char *
user_name(void)
{
	char	   *name = GetUserNameFromId(GetSessionUserId(), false);

	if (!pg_verifymbstr(name, strlen(name), true))
		zklock_make_plain(name);
	return name;
}

int64
zklock_fence(const ZklockName *name, Oid function)
{
	Datum		values[N_COLUMNS] = {
		[COLUMN_LOCK] = CStringGetTextDatum(name->encoded),
		[COLUMN_FENCED_AT] = TimestampTzGetDatum(GetCurrentTimestamp()),
		[COLUMN_FENCED_BY] = CStringGetTextDatum(user_name())
	};
	ZklockHold *hold;
	bool		exclusive;
	Relation	fences;
	int64		recorded = 0;

	zklock_check_loss();
	hold = zklock_hold_find(name);
	if (hold == NULL || hold->lock == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" is not held by this session", name->display),
				 errhint("Acquire it first, for example with zk_lock(%s).",
						 quote_literal_cstr(name->display))));
	exclusive = hold->mode == ZKL_MODE_EXCLUSIVE;
	if (exclusive)
		PreventCommandIfReadOnly("zk_fence()");

	lock_name(name, exclusive ? ExclusiveLock : ShareLock);
	fences = zklock_open_fences(function, exclusive ? RowExclusiveLock : RowShareLock);
	values[COLUMN_TOKEN] = Int64GetDatum(hold->token);
	(void) run(fences, exclusive ? &record_token : &read_row, values, &recorded);
	if (recorded > hold->token)
		raise_fenced_off(name, hold->token, recorded);
	table_close(fences, NoLock);
	return hold->token;
}

/*
 * Without a name, the lock on the table waits for all transactions that have fenced: each
 * keeps its own.
 */
void
zklock_fence_reset(const ZklockName *name, Oid function)
{
	Datum		values[N_COLUMNS] = {[COLUMN_FENCED_AT] = TimestampTzGetDatum(DT_NOEND)};
	Relation	fences;

	PreventCommandIfReadOnly("zk_fence_reset()");
	if (name)
	{
		lock_name(name, ExclusiveLock);
		values[COLUMN_LOCK] = CStringGetTextDatum(name->encoded);
	}
	fences = zklock_open_fences(function, name ? RowExclusiveLock : ExclusiveLock);
	(void) run(fences, name ? &remove_row : &remove_old_rows, values, NULL);
	table_close(fences, NoLock);
}

/* Returns when the oldest session of this database started. */
static TimestampTz
oldest_session_start(void)
{
	TimestampTz oldest = GetCurrentTimestamp();
	int			n = pgstat_fetch_stat_numbackends();

	for (int i = 0; i < n; i++)
	{
		LocalPgBackendStatus *session = zklock_backend_status(i);

		if (session && session->backendStatus.st_databaseid == MyDatabaseId)
			oldest = Min(oldest, session->backendStatus.st_proc_start_timestamp);
	}
	return oldest;
}

/*
 * A session that could still fence with a smaller token acquired its lock before the row
 * was recorded, so the session started before that.
 */
int64
zklock_fences_vacuum(TimestampTz until, Oid function)
{
	Datum		values[N_COLUMNS] = {
		[COLUMN_FENCED_AT] = TimestampTzGetDatum(Min(until, oldest_session_start()))
	};
	Relation	fences;
	int64		n_removed;

	PreventCommandIfReadOnly("zk_fence_vacuum()");
	fences = zklock_open_fences(function, RowExclusiveLock);
	n_removed = run(fences, &remove_old_rows, values, NULL);
	table_close(fences, NoLock);
	return n_removed;
}


/*
 * Writes by others
 */

static _Noreturn void
raise_kept(TriggerData *trigger)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("recorded tokens in table \"%s\" cannot be lowered or removed",
					RelationGetRelationName(trigger->tg_relation)),
			 errhint("Use zk_fence_reset() after the ZooKeeper ensemble was rebuilt, zk_fence_vacuum() to remove old rows.")));
}

/* Returns the columns of a row, or NULL if one of them is NULL. */
static Datum *
columns_of(TupleTableSlot *row)
{
	slot_getallattrs(row);
	for (int i = 0; i < N_COLUMNS; i++)
		if (row->tts_isnull[i])
			return NULL;
	return row->tts_values;
}

/* Inserts nothing if the lock has a row, but raises its token if that is smaller. */
static HeapTuple
keep_on_insert(TriggerData *trigger)
{
	Datum	   *inserted = columns_of(trigger->tg_trigslot);
	ZklockName	name = {0};
	int64		recorded;

	/* A NULL fails the table's constraints. */
	if (inserted == NULL)
		return trigger->tg_trigtuple;
	name.encoded = name.display = TextDatumGetCString(inserted[COLUMN_LOCK]);
	lock_name(&name, ExclusiveLock);
	if (run(trigger->tg_relation, &read_row, inserted, &recorded) == 0)
		return trigger->tg_trigtuple;
	if (recorded < DatumGetInt64(inserted[COLUMN_TOKEN]))
		(void) run(trigger->tg_relation, &record_token, inserted, &recorded);
	return NULL;
}

/*
 * Returns the row that replaces an old one, with the later of the two times: otherwise
 * zk_fence_vacuum() could remove the token before its age allows.  Returns NULL if the token
 * would be lowered.  The executor has locked the latest version of the old row.
 */
static HeapTuple
keep_on_update(TriggerData *trigger)
{
	Datum	   *old = columns_of(trigger->tg_trigslot);
	Datum	   *new = columns_of(trigger->tg_newslot);
	int			column = COLUMN_FENCED_AT + 1;
	bool		is_null = false;

	if (old == NULL || new == NULL)
		return trigger->tg_newtuple;
	if (DatumGetInt64(new[COLUMN_TOKEN]) < DatumGetInt64(old[COLUMN_TOKEN]) ||
		strcmp(TextDatumGetCString(new[COLUMN_LOCK]), TextDatumGetCString(old[COLUMN_LOCK])) != 0)
		return NULL;
	if (DatumGetTimestampTz(new[COLUMN_FENCED_AT]) >= DatumGetTimestampTz(old[COLUMN_FENCED_AT]))
		return trigger->tg_newtuple;
	return heap_modify_tuple_by_cols(trigger->tg_newtuple, RelationGetDescr(trigger->tg_relation),
									 1, &column, &old[COLUMN_FENCED_AT], &is_null);
}

PG_FUNCTION_INFO_V1(zklock_fences_keep);

/*
 * An apply worker skips a write that would lower or remove a token, because an error
 * would stop its subscription.  All others get the error.
 */
Datum
zklock_fences_keep(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	HeapTuple	kept = NULL;

	if (!CALLED_AS_TRIGGER(fcinfo))
		elog(ERROR, "not called as a trigger");
	if (own_write)
		return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ?
							   trigger->tg_newtuple : trigger->tg_trigtuple);
	zklock_check_fences(trigger->tg_relation, fcinfo->flinfo->fn_oid);
	if (!TRIGGER_FIRED_BEFORE(trigger->tg_event))
		elog(ERROR, "trigger is not fired before the write");

	if (TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		return PointerGetDatum(keep_on_insert(trigger));
	if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
		kept = keep_on_update(trigger);
	if (kept == NULL && (SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA ||
						 TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event)))
		raise_kept(trigger);
	return PointerGetDatum(kept);
}
