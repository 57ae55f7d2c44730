/*-------------------------------------------------------------------------
 *
 * internal.h
 *		Declarations shared by the files of this folder only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SEMAPHORE_INTERNAL_H
#define ZKL_SEMAPHORE_INTERNAL_H

#include "semaphore.h"

/* capacity.c */
extern void zkl__capacity_advance(ZklRequest *request);

#endif							/* ZKL_SEMAPHORE_INTERNAL_H */
