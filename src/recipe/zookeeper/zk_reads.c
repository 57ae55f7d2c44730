/*-------------------------------------------------------------------------
 *
 * zk_reads.c
 *		Sends several reads in one request, which the client library cannot do.
 *
 * Since 3.6 ZooKeeper's servers support multiRead, a request that lists or reads
 * several znodes; the C library has no function for it.  This file composes the
 * request and passes it to the filter, which does not show its answer to the library.
 * With TLS there is no filter: the caller then has to read the znodes one by one.
 * Called by zk_calls.c and zk_drive.c, with the library's mutex held.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "zk_library.h"

/* Numbers of ZooKeeper's protocol. */
#define OP_GET 4
#define OP_LIST 8
#define OP_MULTI_READ 22
#define TYPE_ERROR (-1)

/* The first of the xids that neither library nor server uses, and how many are used. */
#define FIRST_XID (-1000)
#define N_XIDS 1000000

/* Bytes besides the path: header, length of the path, watch. */
#define READ_SIZE (9 + 4 + 1)
#define FRAME_SIZE (4 + 4 + 4 + 9)

/* Offsets in an answer, with its length. */
#define ERROR_AT 16
#define ANSWER_AT 20

/* Offsets and size of a Stat. */
#define CTIME_AT 16
#define VERSION_AT 32
#define OWNER_AT 44
#define STAT_SIZE 68


/*
 * The request
 */

static unsigned char *
put_header(unsigned char *at, int32_t type, bool done)
{
	at = zkl_put_int(at, type);
	*at++ = done;
	return zkl_put_int(at, -1);
}

static unsigned char *
put_read(unsigned char *at, const ZklOp *op, const char *chroot)
{
	size_t		chroot_length = strlen(chroot);
	size_t		length = strlen(op->path);

	at = put_header(at, op->kind == ZKL_OP_LIST ? OP_LIST : OP_GET, false);
	at = zkl_put_int(at, (int32_t) (chroot_length + length));
	memcpy(at, chroot, chroot_length);
	memcpy(at + chroot_length, op->path, length);
	at += chroot_length + length;
	*at++ = 0;					/* no watch */
	return at;
}

/* Returns the request with its length, malloc'd; NULL when out of memory. */
static unsigned char *
frame_of(int32_t xid, const ZklOp *ops, int n_ops, const char *chroot, size_t *size)
{
	unsigned char *frame;
	unsigned char *at;

	*size = FRAME_SIZE;
	for (int i = 0; i < n_ops; i++)
		*size += READ_SIZE + strlen(chroot) + strlen(ops[i].path);
	frame = malloc(*size);
	if (frame == NULL)
		return NULL;
	at = zkl_put_int(frame, (int32_t) (*size - 4));
	at = zkl_put_int(at, xid);
	at = zkl_put_int(at, OP_MULTI_READ);
	for (int i = 0; i < n_ops; i++)
		at = put_read(at, &ops[i], chroot);
	put_header(at, TYPE_ERROR, true);
	return frame;
}

/* Adds the request to the filter; returns false when out of memory. */
static bool
add_request(ZklClient *client, const ZklOp *ops, int n_ops,
			const ZklCompletion *completion)
{
	const char *chroot = strchr(client->connect_string, '/');
	int32_t		xid = FIRST_XID - (int32_t) (client->n_reads++ % N_XIDS);
	size_t		size;
	unsigned char *frame = frame_of(xid, ops, n_ops, chroot && chroot[1] ? chroot : "",
									&size);
	bool		added = frame && zkl_filter_add_out(&client->filter, frame, size, completion);

	free(frame);
	return added;
}

int
zkl_reads_send(ZklClient *client, const ZklOp *ops, int n_ops,
			   ZklCompletion *completion)
{
	if (client->tls)
		return ZUNIMPLEMENTED;
	if (!client->connected || !client->filtered)
		return ZCONNECTIONLOSS;

	/*
	 * The library's own output comes first.  On a new connection this is its credentials
	 * and watches, which it writes only in zookeeper_process().
	 */
	do
		(void) zookeeper_process(client->zh, ZOOKEEPER_WRITE);
	while (zkl_filter_take_out(&client->filter));
	return add_request(client, ops, n_ops, completion) ? ZOK : ZCONNECTIONLOSS;
}


/*
 * The answer, which the filter has checked
 */

static int64_t
get_long(const unsigned char *at)
{
	return (int64_t) ((uint64_t) (uint32_t) zkl_get_int(at) << 32 |
					  (uint32_t) zkl_get_int(at + 4));
}

/* Moves the string one byte down, over its length, to make room for a NUL. */
static char *
take_string(unsigned char **at)
{
	int32_t		length = zkl_get_int(*at);
	char	   *string = (char *) *at + 3;

	memmove(string, *at + 4, (size_t) length);
	string[length] = '\0';
	*at += 4 + length;
	return string;
}

/* Stores the children, or CONNECTION_LOSS when out of memory. */
static void
take_children(unsigned char **at, ZklResult *result)
{
	int32_t		n = zkl_get_int(*at);
	const char **children = malloc(((size_t) n + 1) * sizeof(char *));

	*at += 4;
	if (children == NULL)
		result->code = ZKL_RC_CONNECTION_LOSS;
	for (int32_t i = 0; i < n; i++)
	{
		char	   *child = take_string(at);

		if (children)
			children[i] = child;
	}
	result->children = children;
	result->n_children = children ? n : 0;
}

static void
take_data(unsigned char **at, ZklResult *result)
{
	int32_t		length = zkl_get_int(*at);

	*at += 4;
	if (length > 0)
	{
		result->data = (const char *) *at;
		result->data_len = length;
		*at += length;
	}
	result->czxid = get_long(*at);
	result->ctime_ms = get_long(*at + CTIME_AT);
	result->version = zkl_get_int(*at + VERSION_AT);
	result->owner = get_long(*at + OWNER_AT);
	*at += STAT_SIZE;
}

static void
take_read(unsigned char **at, ZklResult *result)
{
	int32_t		type = zkl_get_int(*at);

	*at += 9;
	if (type == OP_LIST)
		take_children(at, result);
	else if (type == OP_GET)
		take_data(at, result);
	else
	{
		result->raw_code = zkl_get_int(*at);
		result->code = zkl_zk_code(result->raw_code);
		*at += 4;
	}
}

void
zkl_reads_answer_io(ZklClient *client)
{
	ZklFilter  *filter = &client->filter;
	unsigned char *message = filter->in.bytes + filter->in.start;
	unsigned char *at = message + ANSWER_AT;
	int			rc = zkl_get_int(message + ERROR_AT);
	int			n = rc == ZOK ? filter->replies.n_parts : 0;
	ZklResult  *reads = calloc((size_t) n + 1, sizeof(ZklResult));
	ZklResult	result = {.reads = reads};

	if (rc == ZMARSHALLINGERROR)
		rc = ZUNIMPLEMENTED;	/* the filter: the answer is too long */
	for (int i = 0; reads && i < n; i++)
		take_read(&at, &reads[i]);
	result.n_ops = reads ? n : 0;
	zkl_zk_answer_io(filter->replies.owner, &result, reads ? rc : ZCONNECTIONLOSS);
	for (int i = 0; reads && i < n; i++)
		free((void *) reads[i].children);
	free(reads);
	zkl_filter_drop_message(filter);
}

void
zkl_reads_fail_io(ZklClient *client)
{
	ZklReplies *replies = &client->filter.replies;

	while (zkl_replies_drop_first(replies))
	{
		ZklResult	result = {0};

		if (replies->owner)
			zkl_zk_answer_io(replies->owner, &result, ZCONNECTIONLOSS);
	}
}
