/*-------------------------------------------------------------------------
 *
 * stats.c
 *		Counters of events, for the view zk_stat.
 *
 * The counters are in shared memory and count for all backends until the server stops.
 * Atomics, no lock: a reader may see a call half counted, and a concurrent increment
 * survive a reset.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "backend/base/settings.h"
#include "backend/session/stats.h"
#include "backend/session/wait.h"

typedef struct Counters
{
	pg_atomic_uint64 since;		/* a TimestampTz */
	pg_atomic_uint64 counts[ZKLOCK_N_STATS];
} Counters;

/* the counters, stats_reset */
#define STAT_COLUMNS (ZKLOCK_N_STATS + 1)

static Counters *counters;

/* The session whose answers are counted, or NULL; and how many of them are. */
static ZklSession *counted_session = NULL;
static uint64 counted_answers = 0;

void
zklock_request_stats(void)
{
	RequestAddinShmemSpace(sizeof(Counters));
}

void
zklock_init_stats(void)
{
	bool		found;

	counters = ShmemInitStruct("zklock", sizeof(Counters), &found);
	if (found)
		return;
	pg_atomic_init_u64(&counters->since, (uint64) GetCurrentTimestamp());
	for (int i = 0; i < ZKLOCK_N_STATS; i++)
		pg_atomic_init_u64(&counters->counts[i], 0);
}

void
zklock_count(ZklockStat stat, int64 n)
{
	pg_atomic_fetch_add_u64(&counters->counts[stat], n);
}

static void
count_wait(const ZklockTimeout *timeout)
{
	if (!timeout->waited)
		return;
	zklock_count(ZKLOCK_STAT_WAITS, 1);
	zklock_count(ZKLOCK_STAT_WAIT_MS, zkl_now_ms() - timeout->started);
}

void
zklock_count_acquired(const ZklockTimeout *timeout, int n)
{
	zklock_count(ZKLOCK_STAT_ACQUISITIONS, n);
	count_wait(timeout);
}

void
zklock_count_gave_up(const ZklockTimeout *timeout)
{
	if (timeout->waited)
		zklock_count(ZKLOCK_STAT_TIMEOUTS, 1);
	count_wait(timeout);
}

void
zklock_count_failed(const ZklockTimeout *timeout)
{
	int			sqlstate = geterrcode();

	count_wait(timeout);
	if (sqlstate == ERRCODE_LOCK_NOT_AVAILABLE)
		zklock_count(ZKLOCK_STAT_TIMEOUTS, 1);
	else if (sqlstate == ERRCODE_QUERY_CANCELED)
		zklock_count(ZKLOCK_STAT_CANCELS, 1);
	else if (sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED)
		zklock_count(ZKLOCK_STAT_DEADLOCKS, 1);
}

void
zklock_count_round_trips(void)
{
	ZklSessionInfo info;

	if (counted_session == NULL)
		return;
	info = zkl_session_info(counted_session);
	zklock_count(ZKLOCK_STAT_ROUND_TRIPS, info.n_answers - counted_answers);
	counted_answers = info.n_answers;
}

void
zklock_count_answers_of(ZklSession *session)
{
	zklock_count_round_trips();
	counted_session = session;
	counted_answers = 0;
}

PG_FUNCTION_INFO_V1(zklock_stat);

Datum
zklock_stat(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum		values[STAT_COLUMNS];
	bool		nulls[STAT_COLUMNS] = {false};

	zklock_require_preloaded();
	InitMaterializedSRF(fcinfo, 0);
	zklock_count_round_trips();
	for (int i = 0; i < ZKLOCK_N_STATS; i++)
	{
		uint64		count = pg_atomic_read_u64(&counters->counts[i]);

		values[i] = i == ZKLOCK_STAT_WAIT_MS ? Float8GetDatum((double) count) : Int64GetDatum(count);
	}
	values[STAT_COLUMNS - 1] =
		TimestampTzGetDatum((TimestampTz) pg_atomic_read_u64(&counters->since));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	return (Datum) 0;
}

PG_FUNCTION_INFO_V1(zklock_stat_reset);

Datum
zklock_stat_reset(PG_FUNCTION_ARGS)
{
	zklock_require_preloaded();
	zklock_count_round_trips();
	for (int i = 0; i < ZKLOCK_N_STATS; i++)
		pg_atomic_write_u64(&counters->counts[i], 0);
	pg_atomic_write_u64(&counters->since, (uint64) GetCurrentTimestamp());
	PG_RETURN_VOID();
}
