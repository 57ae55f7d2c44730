/*-------------------------------------------------------------------------
 *
 * zk_queue.c
 *		Queues the operations of a client until they are sent.
 *
 * An operation stays in the client's queue until a thread with the library's mutex
 * passes it to the library (zk_calls.c).  The submitter itself cannot: it holds a
 * session's mutex, which must be taken after the library's.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "zk_library.h"

/* Copies everything; returns NULL when out of memory. */
static ZklSubmission *
submission_new(const ZklOp *ops, int n_ops)
{
	size_t		size = sizeof(ZklSubmission) + (size_t) n_ops * sizeof(ZklOp) +
		zkl_ops_bytes(ops, n_ops);
	ZklSubmission *submission;

	submission = malloc(size);
	if (submission == NULL)
		return NULL;
	submission->next = NULL;
	submission->size = size;
	submission->n_ops = n_ops;
	zkl_ops_copy(submission->ops, ops, n_ops, (char *) &submission->ops[n_ops]);
	return submission;
}

bool
zkl_client_submit(ZklClient *client, ZklRequestForm form, const ZklOp *ops, int n_ops,
				  ZklCompletion *completion)
{
	ZklSubmission *submission = submission_new(ops, n_ops);

	if (submission == NULL)
		return false;
	submission->client = client;
	submission->form = form;
	submission->completion = completion;
	pthread_mutex_lock(&client->queue_mutex);
	if (client->last)
		client->last->next = submission;
	else
		client->first = submission;
	client->last = submission;
	pthread_mutex_unlock(&client->queue_mutex);
	return true;
}

ZklSubmission *
zkl_zk_take_first(ZklClient *client)
{
	ZklSubmission *submission;

	pthread_mutex_lock(&client->queue_mutex);
	submission = client->first;
	if (submission)
	{
		client->first = submission->next;
		if (client->first == NULL)
			client->last = NULL;
	}
	pthread_mutex_unlock(&client->queue_mutex);
	return submission;
}

bool
zkl_zk_has_queued(ZklClient *client)
{
	bool		has;

	pthread_mutex_lock(&client->queue_mutex);
	has = client->first != NULL;
	pthread_mutex_unlock(&client->queue_mutex);
	return has;
}
