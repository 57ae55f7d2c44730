/*-------------------------------------------------------------------------
 *
 * fuzz_reads.c
 *		Fuzzes the parser of answers to several reads in one request.
 *
 * zk_reads.c parses an answer that the filter accepts.  Each result must agree with an
 * independent parser.  zk_reads.c is compiled with the header of the client library,
 * but the library itself is not called.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"
#include "recipe/zookeeper/zk_library.h"

#define MAX_READS 4
#define HEADER 20				/* length, xid, transaction, error */
#define STAT_SIZE 68

#define OP_GET 4
#define OP_LIST 8

static ZklCompletion completion;
static const uint8_t *expected; /* a copy of the message, behind its header */
static int	n_expected;
static bool answered;


/*
 * Functions that zk_reads.c calls, except the filter
 */

const int	ZOOKEEPER_WRITE = 1;

int
zookeeper_process(zhandle_t *zh, int events)
{
	(void) zh;
	(void) events;
	return ZOK;
}

ZklResultCode
zkl_zk_code(int rc)
{
	return rc == ZOK ? ZKL_RC_OK : rc == ZNONODE ? ZKL_RC_NO_NODE : ZKL_RC_OTHER;
}

static int64_t
get_number(const uint8_t *at, int size)
{
	uint64_t	number = 0;

	for (int i = 0; i < size; i++)
		number = number << 8 | at[i];
	return size == 4 ? (int32_t) (uint32_t) number : (int64_t) number;
}

static const uint8_t *
compare_children(const uint8_t *at, const ZklResult *read)
{
	int32_t		n = (int32_t) get_number(at, 4);

	must(read->n_children == n, "%d children of %d", read->n_children, n);
	at += 4;
	for (int32_t i = 0; i < n; i++)
	{
		size_t		length = (size_t) get_number(at, 4);

		must(strlen(read->children[i]) == length &&
			 memcmp(read->children[i], at + 4, length) == 0, "child %d", i);
		at += 4 + length;
	}
	return at;
}

static const uint8_t *
compare_data(const uint8_t *at, const ZklResult *read)
{
	int32_t		length = (int32_t) get_number(at, 4);

	at += 4;
	if (length < 0)
		length = 0;
	must(read->data_len == length, "%d bytes of %d", read->data_len, length);
	must(length == 0 || memcmp(read->data, at, (size_t) length) == 0, "the data differ");
	at += length;
	must(read->czxid == get_number(at, 8) && read->ctime_ms == get_number(at + 16, 8) &&
		 read->version == get_number(at + 32, 4) && read->owner == get_number(at + 44, 8),
		 "the Stat differs");
	return at + STAT_SIZE;
}

void
zkl_zk_answer_io(const void *asked, ZklResult *result, int rc)
{
	const uint8_t *at = expected;

	must(asked == &completion && !answered, "the completion is called twice");
	answered = true;
	must(result->n_ops == (rc == ZOK ? n_expected : 0), "%d results", result->n_ops);
	for (int i = 0; i < result->n_ops; i++)
	{
		const ZklResult *read = &result->reads[i];
		int32_t		type = (int32_t) get_number(at, 4);

		at += 9;
		if (type == OP_LIST)
			at = compare_children(at, read);
		else if (type == OP_GET)
			at = compare_data(at, read);
		else
		{
			must(read->raw_code == get_number(at, 4) && read->n_children == 0 &&
				 read->data_len == 0, "an error with a result");
			at += 4;
		}
		if (type == OP_LIST || type == OP_GET)
			must(read->code == ZKL_RC_OK && read->raw_code == 0, "a result with an error");
	}
}


/*
 * The input: number of reads, a bit for each that is a list, 0 or an error; the answer
 * behind its header.
 */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input		input = {data, size};
	int			n = 1 + (int) (take(&input) % MAX_READS);
	unsigned	lists = take(&input);
	unsigned	error = take(&input);
	ZklClient	client = {.connect_string = "h:1/c", .connected = true, .filtered = true};
	ZklFilter  *filter = &client.filter;
	ZklOp		ops[MAX_READS];
	uint8_t    *message = calloc(1, HEADER + input.left);

	for (int i = 0; i < n; i++)
		ops[i] = (ZklOp) {.kind = lists & 1u << i ? ZKL_OP_LIST : ZKL_OP_GET, .path = "/a"};
	*filter = (ZklFilter) {.fd = -1, .pair = -1};
	filter->replies.connect_sent = filter->replies.connected = true;
	must(zkl_reads_send(&client, ops, n, &completion) == ZOK, "out of memory");
	memcpy(message + 4, filter->out.bytes + 4, 4);
	if (error != 0)
	{
		memset(message + 16, 0xff, 4);
		message[19] = (uint8_t) error;
	}
	memcpy(message + HEADER, input.data, input.left);
	filter->in = (ZklBuffer) {message, 0, HEADER + input.left, HEADER + input.left};
	if (zkl_replies_check(&filter->replies, message + 4, HEADER - 4 + input.left) == NULL)
	{
		must(filter->replies.owner == &completion, "the answer belongs to another request");
		filter->valid = HEADER + input.left;
		expected = input.data;
		n_expected = n;
		answered = false;
		zkl_reads_answer_io(&client);
		must(answered && filter->replies.owner == NULL && filter->valid == 0, "the completion is not called");
	}
	zkl_filter_free(filter);
	return 0;
}
