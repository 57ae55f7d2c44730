/*-------------------------------------------------------------------------
 *
 * told.h
 *		A scene whose owners count what the threads tell them of what they hold.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOLD_H
#define TOLD_H

#include "scene.h"

/* Since begin_telling(), all parties together. */
extern int	losses_told;
extern int	revocations_told;

/* scene_begin(), with these counts from none. */
extern void begin_telling(int n_parties);

#endif							/* TOLD_H */
