/*-------------------------------------------------------------------------
 *
 * fence.c
 *		Fencing: an earlier holder can't commit after a later one.
 *
 * Owns the table zklock_fences: the greatest token that exclusive holders of a
 * lock have recorded in this database.  Called by the SQL functions alone.
 *
 * Who fences takes a lock of PostgreSQL's lock manager on the name until the
 * end of the transaction, shared like the zk lock that it holds or exclusive
 * like it, and only then looks at the table.  So nobody's decision is
 * overtaken: what is looked at is committed or our own, and stays as it is until
 * we are through.  This does not depend on snapshots, hence on isolation
 * levels, and needs no row: one that only shares can take it as well.
 *
 * The table is read and written directly, never through SQL: the caller
 * needs no right on it, and nothing that the caller can define, neither search
 * path nor operator nor trigger, has a part in it.  No oid is remembered, since
 * the extension can be dropped, created and moved in the midst of a session.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "fence.h"
#include "holds.h"
#include "loss.h"

#define FENCES "zklock_fences"

/* Its columns, as the extension's script makes them. */
enum
{
	COLUMN_LOCK = 1,
	COLUMN_TOKEN,
	COLUMN_FENCED_AT,
	COLUMN_FENCED_BY
};

/* pg_advisory_lock() uses 1 and 2, the first tier has one of its own. */
#define FENCE_LOCKTAG_FIELD4 0x5A46

/* Until the end of the transaction, also of one that is prepared. */
static void
lock_fence(const ZklockName *name, LOCKMODE mode)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (name->hash >> 32),
						 (uint32) name->hash, FENCE_LOCKTAG_FIELD4);
	(void) LockAcquire(&tag, mode, false, false);
}

/*
 * The table of the extension that the called function belongs to.  One that
 * has but the same name could have any shape.
 */
static Relation
open_fences(Oid function, LOCKMODE mode)
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
	return table_open(table, mode);
}

/* The row of a name, a copy, or NULL. */
static HeapTuple
find_row(Relation fences, const ZklockName *name)
{
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	row;

	list_free(RelationGetIndexList(fences));
	ScanKeyInit(&key, COLUMN_LOCK, BTEqualStrategyNumber, F_TEXTEQ,
				CStringGetTextDatum(name->encoded));

	/* Under the lock no other transaction is changing the row: no snapshot. */
	scan = systable_beginscan(fences, fences->rd_pkindex,
							  OidIsValid(fences->rd_pkindex), SnapshotSelf,
							  1, &key);
	row = systable_getnext(scan);
	if (row)
		row = heap_copytuple(row);
	systable_endscan(scan);
	return row;
}

static int64
recorded_token(Relation fences, HeapTuple row)
{
	bool		is_null;

	return DatumGetInt64(heap_getattr(row, COLUMN_TOKEN,
									  RelationGetDescr(fences), &is_null));
}

/* In place of "row", if there is one. */
static void
record(Relation fences, HeapTuple row, const ZklockName *name, int64 token)
{
	TupleDesc	shape = RelationGetDescr(fences);
	Datum	   *values = palloc0(sizeof(Datum) * shape->natts);
	bool	   *nulls = palloc(sizeof(bool) * shape->natts);
	HeapTuple	new_row;

	memset(nulls, true, sizeof(bool) * shape->natts);
	values[COLUMN_LOCK - 1] = CStringGetTextDatum(name->encoded);
	values[COLUMN_TOKEN - 1] = Int64GetDatum(token);
	values[COLUMN_FENCED_AT - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	values[COLUMN_FENCED_BY - 1] =
		CStringGetTextDatum(GetUserNameFromId(GetSessionUserId(), false));
	memset(nulls, false, sizeof(bool) * COLUMN_FENCED_BY);
	new_row = heap_form_tuple(shape, values, nulls);
	if (row)
		CatalogTupleUpdate(fences, &row->t_self, new_row);
	else
		CatalogTupleInsert(fences, new_row);

	/* The same statement may fence again. */
	CommandCounterIncrement();
}

static _Noreturn void
raise_fenced_off(const ZklockName *name, int64 token, int64 recorded)
{
	zklock_doom();
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("lock \"%s\" was fenced off by a later holder", name->display),
			 errdetail("This session holds it with token " INT64_FORMAT "; token " INT64_FORMAT " is recorded in this database.",
					   token, recorded),
			 errhint("Release the lock, take it again, and retry the transaction. If the ZooKeeper ensemble was rebuilt from nothing, its tokens begin anew: let an administrator call zk_fence_reset(%s).",
					 quote_literal_cstr(name->display))));
}

int64
zklock_fence(const ZklockName *name, Oid function)
{
	ZklockHold *hold;
	int64		token;
	bool		exclusive;
	Relation	fences;
	HeapTuple	row;
	int64		recorded;

	zklock_check_loss();
	hold = zklock_hold_find(name);
	if (hold == NULL || hold->lock == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" is not held by this session", name->display),
				 errhint("Take it before it is fenced, with zk_lock(%s) for example.",
						 quote_literal_cstr(name->display))));
	token = hold->token;
	exclusive = hold->mode == ZKL_MODE_EXCLUSIVE;
	if (exclusive)
		PreventCommandIfReadOnly("zk_fence()");

	lock_fence(name, exclusive ? ExclusiveLock : ShareLock);
	fences = open_fences(function, exclusive ? RowExclusiveLock : AccessShareLock);
	row = find_row(fences, name);
	recorded = row ? recorded_token(fences, row) : 0;
	if (recorded > token)
		raise_fenced_off(name, token, recorded);
	if (exclusive && recorded < token)
		record(fences, row, name, token);
	table_close(fences, NoLock);
	return token;
}

void
zklock_fence_reset(const ZklockName *name, Oid function)
{
	Relation	fences;
	HeapTuple	row;

	PreventCommandIfReadOnly("zk_fence_reset()");
	lock_fence(name, ExclusiveLock);
	fences = open_fences(function, RowExclusiveLock);
	row = find_row(fences, name);
	if (row)
	{
		CatalogTupleDelete(fences, &row->t_self);
		CommandCounterIncrement();
	}
	table_close(fences, NoLock);
}
