/*-------------------------------------------------------------------------
 *
 * letters.h
 *		Short names for scenes: parties A to D, exclusive X, shared S, and NONE.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LETTERS_H
#define LETTERS_H

#include "scene.h"

#define X ZKL_MODE_EXCLUSIVE
#define S ZKL_MODE_SHARED
#define NONE ZKL_MODE_NONE

static Party *const A = &parties[0];
static Party *const B = &parties[1];
static Party *const C = &parties[2];
static Party *const D = &parties[3];

#endif							/* LETTERS_H */
