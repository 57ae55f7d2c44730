/*-------------------------------------------------------------------------
 *
 * test_wire.c
 *		The bytes that other versions read and write: recorded, and compared with what this
 *		version writes and reads.  A difference is a new wire format; the table of
 *		doc/design/wire.md says which version began to write what.
 *
 * Promise: 12.3
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "recipe/deadlock/report.h"
#include "recipe/queue/node_names.h"
#include "tap.h"

#define SESSION INT64_C(0x10000abcdef0007)
#define TAG UINT32_C(0x1a2b3c4d)

/* Format 1, since 0.9. */
static const struct
{
	ZklNodeNames names;
	ZklMode		mode;
	uint32_t	counter;
	const char *child;
}			nodes[] = {
	{ZKL_NODE_NAMES_CURATOR, ZKL_MODE_EXCLUSIVE, 1, "_c_010000ab-cdef-0007-1a2b-3c4d00000001-__WRIT__0000000042"},
	{ZKL_NODE_NAMES_CURATOR, ZKL_MODE_SHARED, 0xfe, "_c_010000ab-cdef-0007-1a2b-3c4d000000fe-__READ__0000000042"},
	{ZKL_NODE_NAMES_CURATOR, ZKL_MODE_EXCLUSIVE, ZKL_KEEP_BIT | 1, "_c_010000ab-cdef-0007-1a2b-3c4d80000001-__WRIT__0000000042"},
	{ZKL_NODE_NAMES_CURATOR, ZKL_MODE_EXCLUSIVE, ZKL_UPGRADE_BIT | 1, "_c_010000ab-cdef-0007-1a2b-3c4d40000001-__WRIT__0000000042"},	/* since 0.10 */
	{ZKL_NODE_NAMES_CURATOR_MUTEX, ZKL_MODE_EXCLUSIVE, 1, "_c_010000ab-cdef-0007-1a2b-3c4d00000001-lock-0000000042"},
	{ZKL_NODE_NAMES_KAZOO, ZKL_MODE_EXCLUSIVE, 1, "010000abcdef00071a2b3c4d00000001__lock__0000000042"},
	{ZKL_NODE_NAMES_KAZOO, ZKL_MODE_SHARED, 1, "010000abcdef00071a2b3c4d00000001__rlock__0000000042"},
};

static void
test_nodes(void)
{
	char		child[ZKL_CHILD_NAME_SIZE];

	for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
	{
		ZklContender contender;
		uint64_t	guid_end = zkl_guid_end(TAG, nodes[i].counter);

		ok(zkl_child_name(nodes[i].names, nodes[i].mode, SESSION, guid_end, 42, child), "the name is written");
		is_str(child, nodes[i].child, "node name %s", nodes[i].child);
		ok(zkl_parse_child(nodes[i].child, &contender) && contender.has_owner &&
		   (int64_t) contender.owner == SESSION && contender.guid_end == guid_end && contender.number == 42 &&
		   contender.writer == (nodes[i].mode == ZKL_MODE_EXCLUSIVE), "the recorded name is read");
	}
	zkl_permit_prefix(SESSION, zkl_guid_end(TAG, 3), child);
	is_str(child, "_c_010000ab-cdef-0007-1a2b-3c4d00000003-lease-", "the name of a permit, before its number");
	is_str(ZKL_PERMITS_QUEUE " " ZKL_PERMITS, "locks leases", "the znodes of a semaphore");
}

static void
test_data(void)
{
	static const struct
	{
		ZklKeepState state;
		const char *data;
	}			kept[] = {
		{ZKL_KEEP_MAY, "zklock pid=7 server=db1:5432 keep=may"},
		{ZKL_KEEP_ASKED, "zklock pid=7 server=db1:5432 keep=ask"},
		{ZKL_KEEP_IN_USE, "zklock pid=7 server=db1:5432 keep=use"},
		{ZKL_KEEP_NEVER, "zklock pid=7 server=db1:5432"},
	};
	char		encoded[ZKL_ENCODED_SIZE(16)];
	int			capacity = 0;

	for (int i = 0; i < 4; i++)
	{
		char		data[64];
		int			n = (int) strlen(kept[i].data);

		is_int(zkl_parse_keep(kept[i].data, n), kept[i].state, "the recorded data \"%s\" are read", kept[i].data);
		if (kept[i].state == ZKL_KEEP_NEVER)
			continue;
		memcpy(data, kept[0].data, (size_t) n + 1);
		zkl_set_keep(data, n, kept[i].state);
		is_str(data, kept[i].data, "the data \"%s\" are written", kept[i].data);
	}
	is_str(ZKL_SUPERUSER_DATA, "zklock superuser ", "the data of a superuser's node, at the beginning");
	zkl_encode_name("a b/\xc3\xa9.", 7, encoded);
	is_str(encoded, "a%20b%2F%C3%A9.", "the name of a lock's znode");
	ok(zkl_parse_capacity("10000", 5, &capacity) && capacity == 10000, "the data of a semaphore: its size");
}

/* Format 2 of reports, since 0.9. */
static const char recorded[] =
"2 0 1a2b 4711 5 db1:5432\n"
"l 0 0 0 0 orders/_c_010000ab-cdef-0007-1a2b-3c4d00000001-__WRIT__0000000042\n"
"p 0 0 0 3 pool/_c_010000ab-cdef-0007-1a2b-3c4d00000003-lease-0000000001\n"
"w 10000abcdef0008 77 4712 1 ShareLock on transaction 99\n"
"h abcdef01 0 0 120 \n";

static void
test_reports(void)
{
	ZklScratch	scratch = {0};
	ZklReport  *report = zkl_report_decode(&scratch, recorded, (int) strlen(recorded));
	char		name[ZKL_WAITING_NAME_SIZE];
	char	   *data;
	uint64_t	session;
	uint64_t	local;
	int			n;

	ok(report && report->pid == 4711 && report->bell == 5 && report->identity == 0x1a2b && report->n_nodes == 2 &&
	   report->nodes[1].place == ZKL_PLACE_PERMITS && report->nodes[1].capacity == 3 && report->n_waiters == 1 &&
	   report->waiters[0].only_for_place && report->waiters[0].n_held == 1, "the recorded report is read");
	data = report ? zkl_report_encode(&scratch, report, &n) : NULL;
	data = data ? strndup(data, (size_t) n) : NULL;
	is_str(data ? data : "", recorded, "the report is written");
	free(data);
	zkl__scratch_free(&scratch);

	zkl_waiting_name(SESSION, 0, name);
	is_str(name, "10000abcdef0007", "the name of a report's znode and of a bell");
	zkl_waiting_name(SESSION, 0xab, name);
	is_str(name, "ab@10000abcdef0007", "the name of the znode of a local waiter");
	ok(zkl_parse_waiting("ab@10000abcdef0007", &session, &local) && (int64_t) session == SESSION && local == 0xab,
	   "the recorded name of a local waiter is read");
}

int
main(void)
{
	test_nodes();
	test_data();
	test_reports();
	return done();
}
