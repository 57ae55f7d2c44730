/*-------------------------------------------------------------------------
 *
 * fence_table.c
 *		The table of fences: which one it is, and whether it is as the extension's script defined it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "backend/transaction/internal.h"

Oid			zklock_fences_types[N_COLUMNS] = {TEXTOID, INT8OID, TIMESTAMPTZOID, TEXTOID};

/* The extension's triggers on the table. */
#define N_TRIGGERS 2

/* The code here reads the columns by their types, which the owner can change. */
static void
check_columns(Relation fences)
{
	TupleDesc	columns = RelationGetDescr(fences);

	for (int i = 0; i < N_COLUMNS; i++)
		if (i >= columns->natts || TupleDescAttr(columns, i)->atttypid != zklock_fences_types[i])
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("columns of table \"%s\" have been changed", ZKLOCK_FENCES),
					 errhint("Use ALTER TABLE to give the first columns their types again: lock text, token bigint, fenced_at timestamptz, fenced_by text.")));
}

/*
 * Returns whether a trigger is one of the extension's, as its script defines it: everybody
 * with TRIGGER on the table can replace it, or use its function with a condition, which would
 * run as the owner.
 */
static bool
is_ours(const Trigger *trigger, Oid extension)
{
	int			type = strcmp(trigger->tgname, "zklock_fences_keep") == 0
		? TRIGGER_TYPE_ROW | TRIGGER_TYPE_BEFORE | TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE | TRIGGER_TYPE_DELETE
		: strcmp(trigger->tgname, "zklock_fences_keep_all") == 0
		? TRIGGER_TYPE_BEFORE | TRIGGER_TYPE_TRUNCATE : -1;

	return trigger->tgtype == type && trigger->tgqual == NULL && trigger->tgnattr == 0 &&
		getExtensionOfObject(ProcedureRelationId, trigger->tgfoid) == extension;
}

/*
 * Any other trigger would run as the owner; one that fires after ours can lower a token.
 * Ours must fire in apply workers, too: restoring a dump that was made with
 * --disable-triggers ends that.
 */
static void
check_triggers(Relation fences, Oid extension)
{
	/* A copy: reading a catalog may read the description of the table again. */
	TriggerDesc *all = CopyTriggerDesc(fences->trigdesc);
	int			n_always = 0;

	for (int i = 0; all && i < all->numtriggers; i++)
	{
		Trigger    *trigger = &all->triggers[i];

		if (!is_ours(trigger, extension))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("table \"%s\" has a trigger \"%s\" that the extension did not define", ZKLOCK_FENCES, trigger->tgname),
					 errdetail("It would run with the rights of the table's owner, and could lower recorded tokens, or has lowered some."),
					 errhint("Drop the trigger, or the foreign key that it belongs to. Revoke TRIGGER and REFERENCES on the table.")));
		n_always += trigger->tgenabled == TRIGGER_FIRES_ALWAYS;
	}
	if (n_always < N_TRIGGERS)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("triggers of table \"%s\" are missing or do not always fire", ZKLOCK_FENCES),
				 errdetail("Recorded tokens could be lowered, or have been."),
				 errhint("Use CREATE OR REPLACE TRIGGER zklock_fences_keep BEFORE INSERT OR UPDATE OR DELETE ON %1$s FOR EACH ROW EXECUTE FUNCTION zklock_fences_keep(); "
						 "CREATE OR REPLACE TRIGGER zklock_fences_keep_all BEFORE TRUNCATE ON %1$s FOR EACH STATEMENT EXECUTE FUNCTION zklock_fences_keep(); "
						 "ALTER TABLE %1$s ENABLE ALWAYS TRIGGER zklock_fences_keep, ENABLE ALWAYS TRIGGER zklock_fences_keep_all.", ZKLOCK_FENCES)));
}

/*
 * Returns the table of the extension that a function belongs to.  The oid is not cached,
 * because the extension can be dropped, created and moved during a session.  Checks the
 * extension, because another table of that name could have any columns.
 */
static Oid
find_table(Oid function, Oid *extension)
{
	Oid			schema = get_func_namespace(function);
	Oid			table = get_relname_relid(ZKLOCK_FENCES, schema);

	*extension = getExtensionOfObject(ProcedureRelationId, function);
	if (!OidIsValid(table) || !OidIsValid(*extension) ||
		getExtensionOfObject(RelationRelationId, table) != *extension)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table \"%s\" of extension zklock is not in the schema of its functions",
						ZKLOCK_FENCES),
				 errhint("Move the extension as a whole, with ALTER EXTENSION zklock SET SCHEMA.")));
	return table;
}

static void
check_table(Relation fences, Oid extension)
{
	check_columns(fences);
	if (fences->rd_rules)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" has rules", ZKLOCK_FENCES),
				 errhint("Drop the rules.")));
	check_triggers(fences, extension);
}

Relation
zklock_open_fences(Oid function, LOCKMODE mode)
{
	Oid			extension;
	Relation	fences = table_open(find_table(function, &extension), mode);

	check_table(fences, extension);
	return fences;
}

void
zklock_check_fences(Relation fences, Oid function)
{
	Oid			extension;

	if (find_table(function, &extension) != RelationGetRelid(fences))
		elog(ERROR, "trigger is for table \"%s\" alone", ZKLOCK_FENCES);
	check_table(fences, extension);
}
