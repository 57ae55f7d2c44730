/*-------------------------------------------------------------------------
 *
 * fuzz_report.c
 *		Fuzzes the data of wait reports: any bytes are safe, also for a search, and names
 *		are single components of a path.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"
#include "recipe/deadlock/find_deadlock.h"

static ZklScratch scratch;

static void
check_component(const char *name)
{
	must(name[0] != '\0' && strchr(name, '/') == NULL, "not one component: %s", name);
}

/* Two sessions have this report; each of them is in each queue that the reports name. */
static void
search(const uint8_t *data, size_t size, const ZklReport *report)
{
	static const char *const waiting[] = {"1", "2", "3@2"};
	const char *children[64];
	ZklSnapshot *snapshot = zkl_snapshot_new(&scratch, 1);
	ZklWant		want;
	int			n = 0;

	if (setjmp(scratch.left) != 0)
		return;
	for (int i = 0; i < report->n_nodes && n < 64; i++)
		children[n++] = report->nodes[i].child;
	zkl_snapshot_add_waiting(snapshot, waiting, 3);
	while ((want = zkl_snapshot_next(snapshot)).kind != ZKL_WANT_NOTHING)
		if (want.kind == ZKL_WANT_QUEUE)
			zkl_snapshot_add_queue(snapshot, want.place, want.name, 0xab, children, n);
		else
			zkl_snapshot_add_report(snapshot, want.session, want.session, 1, 0,
									(const char *) data, (int) size);
	(void) zkl_snapshot_find_deadlock(snapshot);
}

static void
check_report(const uint8_t *data, size_t size)
{
	ZklReport  *report = zkl_report_decode(&scratch, (const char *) data, (int) size);

	for (int i = 0; report && i < report->n_nodes; i++)
	{
		check_component(report->nodes[i].name);
		check_component(report->nodes[i].child);
	}
	if (report)
		search(data, size, report);
	zkl__scratch_free(&scratch);
}

static void
check_waiting_name(const uint8_t *data, size_t size)
{
	char		name[ZKL_WAITING_NAME_SIZE * 2];
	char		again[ZKL_WAITING_NAME_SIZE];
	size_t		length = size < sizeof(name) - 1 ? size : sizeof(name) - 1;
	uint64_t	session;
	uint64_t	local;
	uint64_t	session_again;
	uint64_t	local_again;

	memcpy(name, data, length);
	name[length] = '\0';
	if (!zkl_parse_waiting(name, &session, &local))
		return;
	zkl_waiting_name(session, local, again);
	must(zkl_parse_waiting(again, &session_again, &local_again) && session == session_again &&
		 local == local_again, "%s is read as %s", name, again);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 0)
	{
		check_report(data, size);
		check_waiting_name(data, size);
	}
	return 0;
}
