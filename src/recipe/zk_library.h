/*-------------------------------------------------------------------------
 *
 * zk_library.h
 *		What zk_client.c and zk_multi.c, the two files that know the client
 *		library, share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ZK_LIBRARY_H
#define ZKL_ZK_LIBRARY_H

#include <pthread.h>

#ifdef ZKLOCK_HAVE_TLS
#define HAVE_OPENSSL_H			/* so the header declares what is for TLS */
#endif
#include <zookeeper/zookeeper.h>

#include "client.h"

/* zk_client.c */
extern ZklResultCode zkl_zk_code(int rc);
extern int	zkl_zk_create_mode(ZklCreateKind kind);

/* Passes an answer on to the ZklCompletion of an operation. */
extern void zkl_zk_answer_io(const void *completion, ZklResult *result, int rc);

/* zk_multi.c: those of a client that are in flight. */
typedef struct ZklMultis
{
	pthread_mutex_t mutex;
	struct ZklMulti *first;
} ZklMultis;

extern void zkl_multis_init(ZklMultis *multis);

/* With all that was not answered, and will not be. */
extern void zkl_multis_free(ZklMultis *multis);

/* "acl" is for the nodes that it creates, and outlives it. */
extern bool zkl_multi_send(ZklMultis *multis, zhandle_t *zh,
						   const struct ACL_vector *acl, const ZklOp *ops,
						   int n_ops, ZklCompletion *completion);

#endif							/* ZKL_ZK_LIBRARY_H */
