/*-------------------------------------------------------------------------
 *
 * fence_table.c
 *		The table zklock_fences: the greatest token recorded for each lock.
 *
 * The functions of the extension access the table directly, not through SQL.  So
 * the caller needs no privilege on the table, and nothing that the caller can
 * define (search path, operator, trigger) is involved.  The table's oid is not
 * cached, because the extension can be dropped, created and moved during a session.
 *
 * Rows are also written by others: the apply workers of logical replication,
 * pg_restore, an administrator.  The triggers below see all these writes, and no
 * write lowers or removes a recorded token.  The triggers are enabled ALWAYS, so
 * they fire in apply workers too.
 *
 * Every insert locks the name first (zklock_fences_lock_name()), so two inserts of
 * one name never conflict in the unique index.  An UPDATE by others locks only the
 * row, so the functions here that write lock the row as well and read its latest
 * version.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "backend/transaction/fence_table.h"

#define FENCES "zklock_fences"

/* Columns, as the extension's script defines them. */
enum
{
	COLUMN_LOCK = 1,
	COLUMN_TOKEN,
	COLUMN_FENCED_AT,
	COLUMN_FENCED_BY
};

#define N_COLUMNS COLUMN_FENCED_BY

/* The extension's triggers on the table. */
#define N_TRIGGERS 2

/*
 * Shown as objsubid in pg_locks, as documented.  pg_advisory_lock() uses 1 and 2; the
 * local lock has another value.
 */
#define FENCE_LOCKTAG_FIELD4 0x5A46

void
zklock_fences_lock_name(const char *encoded, LOCKMODE mode)
{
	uint64		hash = zklock_name_hash(encoded, strlen(encoded));
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (hash >> 32),
						 (uint32) hash, FENCE_LOCKTAG_FIELD4);
	(void) LockAcquire(&tag, mode, false, false);
}

/* The functions here write without an executor, which such an index needs. */
static void
check_indexes(Relation fences)
{
	List	   *indexes = RelationGetIndexList(fences);
	ListCell   *cell;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		if (RelationGetIndexExpressions(index) != NIL || RelationGetIndexPredicate(index) != NIL ||
			index->rd_index->indisexclusion)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("index \"%s\" does not suit table \"%s\"",
							RelationGetRelationName(index), FENCES),
					 errdetail("An index of this table must have columns only, and no condition."),
					 errhint("Drop the index.")));
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
}

/*
 * A trigger that fires after ours can lower a token, so ours refuses all writes while there
 * is one.  Ours must fire in apply workers, too: restoring a dump that was made with
 * --disable-triggers ends that.
 */
static void
check_triggers(Relation fences, Oid extension)
{
	TriggerDesc *all = fences->trigdesc;
	int			n_ours = 0;

	for (int i = 0; all && i < all->numtriggers; i++)
	{
		Trigger    *trigger = &all->triggers[i];

		if (getExtensionOfObject(ProcedureRelationId, trigger->tgfoid) == extension)
			n_ours += trigger->tgenabled == TRIGGER_FIRES_ALWAYS;
		else if (TRIGGER_FOR_BEFORE(trigger->tgtype) && TRIGGER_FOR_ROW(trigger->tgtype))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("trigger \"%s\" on table \"%s\" could lower recorded tokens",
							trigger->tgname, FENCES),
					 errhint("Drop the trigger, and revoke TRIGGER on the table.")));
	}
	if (n_ours < N_TRIGGERS)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("triggers of table \"%s\" do not always fire", FENCES),
				 errdetail("Recorded tokens could be lowered."),
				 errhint("Use ALTER TABLE %s ENABLE ALWAYS TRIGGER zklock_fences_keep, ENABLE ALWAYS TRIGGER zklock_fences_keep_all.", FENCES)));
}

/* Checks the extension, because another table of that name could have any columns. */
static Oid
find_table(Oid function)
{
	Oid			schema = get_func_namespace(function);
	Oid			table = get_relname_relid(FENCES, schema);
	Oid			extension = getExtensionOfObject(ProcedureRelationId, function);

	if (!OidIsValid(table) || !OidIsValid(extension) ||
		getExtensionOfObject(RelationRelationId, table) != extension)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table \"%s\" of extension zklock is not in the schema of its functions",
						FENCES),
				 errhint("Move the extension as a whole, with ALTER EXTENSION zklock SET SCHEMA.")));
	return table;
}

static void
check_table(Relation fences, Oid function)
{
	check_indexes(fences);
	check_triggers(fences, getExtensionOfObject(ProcedureRelationId, function));
}

Relation
zklock_fences_open(Oid function, LOCKMODE mode)
{
	Relation	fences = table_open(find_table(function), mode);

	check_table(fences, function);
	return fences;
}

/*
 * Returns a copy of the latest version of a row, committed or our own, whatever the
 * isolation level; NULL if there is none.
 */
static HeapTuple
find_row(Relation fences, const char *encoded)
{
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	row;

	list_free(RelationGetIndexList(fences));
	ScanKeyInit(&key, COLUMN_LOCK, BTEqualStrategyNumber, F_TEXTEQ,
				CStringGetTextDatum(encoded));
	scan = systable_beginscan(fences, fences->rd_pkindex,
							  OidIsValid(fences->rd_pkindex), SnapshotSelf,
							  1, &key);
	row = systable_getnext(scan);
	if (row)
		row = heap_copytuple(row);
	systable_endscan(scan);
	return row;
}

/*
 * Locks a row and replaces *row with its latest version.  Returns false if the row is
 * gone, or if another transaction has locked or changed it and "wait" is LockWaitSkip.
 */
static bool
lock_row(Relation fences, HeapTuple *row, LockWaitPolicy wait)
{
	TupleTableSlot *slot = table_slot_create(fences, NULL);
	TM_FailureData failure;
	TM_Result	result;

	result = table_tuple_lock(fences, &(*row)->t_self, SnapshotSelf, slot,
							  GetCurrentCommandId(true), LockTupleExclusive, wait,
							  TUPLE_LOCK_FLAG_FIND_LAST_VERSION, &failure);
	if (result == TM_Ok)
	{
		*row = ExecCopySlotHeapTuple(slot);
		(*row)->t_self = slot->tts_tid;
	}
	ExecDropSingleTupleTableSlot(slot);
	return result == TM_Ok;
}

/* Returns the row of a name, locked until the end of the transaction, or NULL. */
static HeapTuple
find_and_lock_row(Relation fences, const char *encoded)
{
	HeapTuple	row;

	/* The same command may have written the row. */
	CommandCounterIncrement();
	while ((row = find_row(fences, encoded)) != NULL &&
		   !lock_row(fences, &row, LockWaitBlock))
		CHECK_FOR_INTERRUPTS();
	return row;
}

static Datum
column_of(HeapTuple row, int column, TupleDesc shape)
{
	bool		is_null;

	return heap_getattr(row, column, shape, &is_null);
}

static int64
token_of(Relation fences, HeapTuple row)
{
	return DatumGetInt64(column_of(row, COLUMN_TOKEN, RelationGetDescr(fences)));
}

static char *
lock_of(Relation fences, HeapTuple row)
{
	return TextDatumGetCString(column_of(row, COLUMN_LOCK, RelationGetDescr(fences)));
}

static TimestampTz
fenced_at(Relation fences, HeapTuple row)
{
	return DatumGetTimestampTz(column_of(row, COLUMN_FENCED_AT,
										 RelationGetDescr(fences)));
}

int64
zklock_fences_token(Relation fences, const char *encoded)
{
	HeapTuple	row = find_row(fences, encoded);

	return row ? token_of(fences, row) : 0;
}

static HeapTuple
new_row(Relation fences, const char *encoded, int64 token)
{
	TupleDesc	shape = RelationGetDescr(fences);
	Datum	   *values = palloc0(sizeof(Datum) * shape->natts);
	bool	   *nulls = palloc(sizeof(bool) * shape->natts);

	memset(nulls, true, sizeof(bool) * shape->natts);
	memset(nulls, false, sizeof(bool) * N_COLUMNS);
	values[COLUMN_LOCK - 1] = CStringGetTextDatum(encoded);
	values[COLUMN_TOKEN - 1] = Int64GetDatum(token);
	values[COLUMN_FENCED_AT - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	values[COLUMN_FENCED_BY - 1] =
		CStringGetTextDatum(GetUserNameFromId(GetSessionUserId(), false));
	return heap_form_tuple(shape, values, nulls);
}

int64
zklock_fences_record(Relation fences, const char *encoded, int64 token)
{
	HeapTuple	row = find_row(fences, encoded);

	/* Do not write a token that is already recorded. */
	if (row && token_of(fences, row) >= token)
		return token_of(fences, row);
	row = find_and_lock_row(fences, encoded);
	if (row && token_of(fences, row) >= token)
		return token_of(fences, row);
	if (row)
		CatalogTupleUpdate(fences, &row->t_self, new_row(fences, encoded, token));
	else
		CatalogTupleInsert(fences, new_row(fences, encoded, token));

	/* The same statement may fence again. */
	CommandCounterIncrement();
	return token;
}

void
zklock_fences_remove(Relation fences, const char *encoded)
{
	HeapTuple	row = find_and_lock_row(fences, encoded);

	if (row == NULL)
		return;
	CatalogTupleDelete(fences, &row->t_self);
	CommandCounterIncrement();
}

int64
zklock_fences_remove_until(Relation fences, TimestampTz until)
{
	SysScanDesc scan = systable_beginscan(fences, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	row;
	int64		n_removed = 0;

	while ((row = systable_getnext(scan)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (fenced_at(fences, row) > until || !lock_row(fences, &row, LockWaitSkip))
			continue;
		if (fenced_at(fences, row) <= until)
		{
			CatalogTupleDelete(fences, &row->t_self);
			n_removed++;
		}
		heap_freetuple(row);
	}
	systable_endscan(scan);
	CommandCounterIncrement();
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

/*
 * Returns the row that replaces an old one, with the later of the two times.  Otherwise
 * zk_fence_vacuum() could remove the token before its age allows.
 */
static HeapTuple
keep_later_time(Relation fences, HeapTuple old, HeapTuple new)
{
	int			column = COLUMN_FENCED_AT;
	Datum		time = TimestampTzGetDatum(fenced_at(fences, old));
	bool		is_null = false;

	if (heap_attisnull(new, COLUMN_FENCED_AT, RelationGetDescr(fences)) ||
		fenced_at(fences, new) >= fenced_at(fences, old))
		return new;
	return heap_modify_tuple_by_cols(new, RelationGetDescr(fences), 1, &column,
									 &time, &is_null);
}

/*
 * If the lock already has a row, raises its token if that is smaller, and inserts
 * nothing: no error and no second row.
 */
static HeapTuple
keep_on_insert(TriggerData *trigger)
{
	Relation	fences = trigger->tg_relation;
	HeapTuple	inserted = trigger->tg_trigtuple;
	HeapTuple	row;
	char	   *encoded;

	/* A NULL in any column fails the table's constraints. */
	for (int column = 1; column <= N_COLUMNS; column++)
		if (heap_attisnull(inserted, column, RelationGetDescr(fences)))
			return inserted;
	encoded = lock_of(fences, inserted);
	zklock_fences_lock_name(encoded, ExclusiveLock);
	row = find_and_lock_row(fences, encoded);
	if (row == NULL)
		return inserted;
	if (token_of(fences, row) < token_of(fences, inserted))
	{
		CatalogTupleUpdate(fences, &row->t_self,
						   heap_copytuple(keep_later_time(fences, row, inserted)));
		CommandCounterIncrement();
	}
	return NULL;
}

/* The executor has locked the latest version of the old row. */
static bool
is_lowered(TriggerData *trigger)
{
	Relation	fences = trigger->tg_relation;
	TupleDesc	shape = RelationGetDescr(fences);
	HeapTuple	old = trigger->tg_trigtuple;
	HeapTuple	new = trigger->tg_newtuple;

	if (heap_attisnull(new, COLUMN_LOCK, shape) ||
		heap_attisnull(new, COLUMN_TOKEN, shape))
		return false;
	return token_of(fences, new) < token_of(fences, old) ||
		strcmp(lock_of(fences, new), lock_of(fences, old)) != 0;
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

	if (!CALLED_AS_TRIGGER(fcinfo))
		elog(ERROR, "not called as a trigger");
	if (find_table(fcinfo->flinfo->fn_oid) != RelationGetRelid(trigger->tg_relation) ||
		!TRIGGER_FIRED_BEFORE(trigger->tg_event))
		elog(ERROR, "trigger is for table \"%s\" alone", FENCES);
	check_table(trigger->tg_relation, fcinfo->flinfo->fn_oid);

	if (TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		return PointerGetDatum(keep_on_insert(trigger));
	if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) && !is_lowered(trigger))
		return PointerGetDatum(keep_later_time(trigger->tg_relation,
											   trigger->tg_trigtuple,
											   trigger->tg_newtuple));
	if (SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA ||
		TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event))
		raise_kept(trigger);
	return PointerGetDatum(NULL);
}
