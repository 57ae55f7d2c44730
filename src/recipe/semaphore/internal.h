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

/* semaphore.c */
extern void zkl__permit_drive(ZklRequest *request);

/* capacity.c */
extern void zkl__semaphore_check(ZklRequest *request);
extern bool zkl__semaphore_is_checked(const ZklPermit *permit);

#endif							/* ZKL_SEMAPHORE_INTERNAL_H */
