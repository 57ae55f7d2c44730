/*-------------------------------------------------------------------------
 *
 * fake_wire.h
 *		The requests, answers and events between fake_client.c and fake_tree.c:
 *		their memory and their queues.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FAKE_WIRE_H
#define FAKE_WIRE_H

#include "recipe/zookeeper/client.h"

typedef enum FakeRequestKind
{
	REQUEST_CREATE,
	REQUEST_DELETE,
	REQUEST_GET,
	REQUEST_STAT,
	REQUEST_LIST,
	REQUEST_SET,
	REQUEST_SYNC,
	REQUEST_MULTI
} FakeRequestKind;

typedef struct FakeRequest
{
	struct FakeRequest *next;
	FakeRequestKind kind;
	int			ordinal;
	bool		watch;
	int32_t		version;		/* set */
	int64_t		submitted_ms;
	const char *path;			/* of the first operation */
	int			n_ops;
	ZklOp	   *ops;			/* what they point to is in the same chunk of memory */
	ZklCall    *call;
} FakeRequest;

typedef enum FakeDeliveryKind
{
	DELIVERY_ANSWER,
	DELIVERY_EVENT,
	DELIVERY_WATCH
} FakeDeliveryKind;

/* The memory behind its pointers is freed with it, so ASan detects later accesses. */
typedef struct FakeDelivery
{
	struct FakeDelivery *next;
	FakeDeliveryKind kind;
	ZklCall    *call;
	ZklResult	result;
	int64_t		zxid;			/* answer: the last transaction that its server has seen */
	ZklConnectionEvent event;
	char	   *path;			/* watch, create */
	bool		children;		/* watch: of the children */
	char	   *data;			/* get */
	char	  **names;			/* list, multi */
	int			n_names;
	ZklResult  *ops;			/* multi */
} FakeDelivery;

/* Copies everything. */
extern FakeRequest *fake_wire_request(FakeRequestKind kind, const ZklOp *ops, int n_ops,
									  ZklCall *call);
extern void fake_wire_push_request(FakeRequest **queue, FakeRequest *request);
extern void fake_wire_push_front(FakeRequest **queue, FakeRequest *request);
extern FakeRequest *fake_wire_pop_request(FakeRequest **queue);
extern void fake_wire_free_request(FakeRequest *request);

extern FakeDelivery *fake_wire_answer(const FakeRequest *request, ZklResultCode code);

/* Does the request change the tree? */
extern bool fake_wire_is_write(const FakeRequest *request);

/* Executes the request and fills in the answer; reads see the tree as of "zxid". */
extern void fake_wire_serve(const FakeRequest *request, int64_t session,
							int64_t zxid, FakeDelivery *answer);
extern void fake_wire_append(FakeDelivery **queue, FakeDelivery *deliveries);
extern void fake_wire_push_loss(FakeDelivery **queue, ZklCall *call, int n_ops);
extern void fake_wire_push_event(FakeDelivery **queue, ZklConnectionEvent event);
extern void fake_wire_push_watch(FakeDelivery **queue, const char *path, bool children);
extern FakeDelivery *fake_wire_pop_delivery(FakeDelivery **queue);
extern void fake_wire_free_delivery(FakeDelivery *delivery);

#endif							/* FAKE_WIRE_H */
