/*-------------------------------------------------------------------------
 *
 * worker.c
 *		An SQL function that runs SQL text in a background worker.
 *
 * run_in_worker(library, sql) starts the worker and returns its process id.  "library"
 * is the path of this library.  After an error the worker exits like most background
 * workers: it exits before its transaction is aborted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(run_in_worker);
extern PGDLLEXPORT void worker_main(Datum arg);

void
worker_main(Datum arg)
{
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection("postgres", NULL, 0);
	StartTransactionCommand();
	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_execute(MyBgworkerEntry->bgw_extra, false, 0);
	PopActiveSnapshot();
	SPI_finish();
	CommitTransactionCommand();
}

Datum
run_in_worker(PG_FUNCTION_ARGS)
{
	BackgroundWorker worker = {
		.bgw_name = "worker",
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_function_name = "worker_main",
		.bgw_notify_pid = MyProcPid
	};
	BackgroundWorkerHandle *handle;
	pid_t		pid;

	text_to_cstring_buffer(PG_GETARG_TEXT_PP(0), worker.bgw_library_name,
						   sizeof(worker.bgw_library_name));
	text_to_cstring_buffer(PG_GETARG_TEXT_PP(1), worker.bgw_extra, sizeof(worker.bgw_extra));
	if (!RegisterDynamicBackgroundWorker(&worker, &handle) ||
		WaitForBackgroundWorkerStartup(handle, &pid) != BGWH_STARTED)
		elog(ERROR, "the worker has not started");
	PG_RETURN_INT32(pid);
}
