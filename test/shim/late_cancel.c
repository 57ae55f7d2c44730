/*-------------------------------------------------------------------------
 *
 * late_cancel.c
 *		An SQL function that holds up the error of a cancel until the next cancel comes.
 *
 * until_next_cancel(statement) executes the statement.  If a cancel ends it, the backend creates the
 * file "held_up" in the data directory before any handler sees the error, and waits until another cancel is
 * pending.
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

/* PostgreSQL calls this while it makes the error. */
static void
wait_for_cancel(void *arg)
{
	if (geterrcode() != ERRCODE_QUERY_CANCELED)
		return;
	close(open("held_up", O_CREAT | O_WRONLY, 0600));
	while (!QueryCancelPending)
		usleep(1000);
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
