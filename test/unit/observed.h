/*-------------------------------------------------------------------------
 *
 * observed.h
 *		A scene that counts what the callbacks report about holds.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OBSERVED_H
#define OBSERVED_H

#include "scene.h"

/* Since begin_telling(), all parties together. */
extern int	losses_reported;
extern int	revocations_reported;

/* Like scene_begin(), with the counts set to zero. */
extern void begin_telling(int n_parties);

#endif							/* OBSERVED_H */
