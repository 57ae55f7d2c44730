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

/* Since begin_observed(), all parties together. */
extern int	losses_reported;
extern int	revocations_reported;

/* Like scene_begin(), with the counts set to zero. */
extern void begin_observed(int n_parties);

/* Same, with one party, which holds "a" exclusively and watches its node. */
extern void begin_watched(void);

#endif							/* OBSERVED_H */
