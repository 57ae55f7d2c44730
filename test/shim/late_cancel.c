/*-------------------------------------------------------------------------
 *
 * late_cancel.c
 *		SQL functions that hold up the error of a cancel until the next cancel comes.
 *
 * until_next_cancel(statement) executes the statement.  If a cancel ends it, the backend creates the
 * file "held_up" in the data directory before any handler sees the error, and waits until another cancel is
 * pending.  after_error(statement) does so after all handlers in the statement.  leave_child() leaves a child
 * process that has ended, and for which nobody waits.  The procedure commits()
 * holds up a cancel of its commit as the first does, and fails with a message that has the SQLSTATE of the commit.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(until_next_cancel);

static void
hold_up(void)
{
	close(open("held_up", O_CREAT | O_WRONLY, 0600));
	while (!QueryCancelPending)
		usleep(1000);
}

/* PostgreSQL calls this while it makes the error. */
static void
wait_for_cancel(void *arg)
{
	if (geterrcode() == ERRCODE_QUERY_CANCELED)
		hold_up();
}

Datum
until_next_cancel(PG_FUNCTION_ARGS)
{
	ErrorContextCallback context = {error_context_stack, wait_for_cancel, NULL};

	error_context_stack = &context;
	SPI_connect();
	SPI_execute(text_to_cstring(PG_GETARG_TEXT_PP(0)), false, 0);
	SPI_finish();
	error_context_stack = context.previous;
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(leave_child);

Datum
leave_child(PG_FUNCTION_ARGS)
{
	if (fork() == 0)
		_exit(0);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(after_error);

Datum
after_error(PG_FUNCTION_ARGS)
{
	SPI_connect();
	PG_TRY();
	{
		SPI_execute(text_to_cstring(PG_GETARG_TEXT_PP(0)), false, 0);
	}
	PG_CATCH();
	{
		hold_up();
		PG_RE_THROW();
	}
	PG_END_TRY();
	SPI_finish();
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(commits);

Datum
commits(PG_FUNCTION_ARGS)
{
	ErrorContextCallback context = {error_context_stack, wait_for_cancel, NULL};
	MemoryContext before = CurrentMemoryContext;
	int			sqlstate = 0;

	SPI_connect_ext(SPI_OPT_NONATOMIC);
	error_context_stack = &context;
	PG_TRY();
	{
		SPI_commit();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(before);
		sqlstate = geterrcode();
		FlushErrorState();
	}
	PG_END_TRY();
	error_context_stack = context.previous;
	if (sqlstate != 0)
		ereport(ERROR, (errmsg("the commit has failed with %s", unpack_sql_state(sqlstate))));
	SPI_finish();
	PG_RETURN_VOID();
}
