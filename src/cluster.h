/*-------------------------------------------------------------------------
 *
 * cluster.h
 *		Reading the queues of the ensemble, whoever stands there.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CLUSTER_H
#define ZKLOCK_CLUSTER_H

#include "errors.h"
#include "names.h"
#include "recipe/recipe.h"

/* What is asked of the ensemble. */
typedef ZklSurvey *(*ZklockSurveyStart) (ZklSession *session, const char *name);

/* What is done with the answer. */
typedef void (*ZklockSurveyUse) (const ZklSurveyInfo *info, void *arg);

/*
 * Has the ensemble asked and the answer used.  Opens a session if there is
 * none, and waits up to zklock.connect_timeout for the connection, interruptibly,
 * at the beginning and whenever it is lost.  When that or the question fails, it
 * is reported at "level", WARNING or ERROR, as "could not <purpose>: why"; after
 * a WARNING the answer was not used.  "name", encoded, is passed on.
 */
extern void zklock_survey(ZklockSurveyStart start, const char *name,
						  int level, const ZklockPurpose *purpose,
						  ZklockSurveyUse use, void *arg);

/* Asks all who hold the lock to let go; returns how many they are.  Throws. */
extern int	zklock_revoke(const ZklockName *name);

#endif							/* ZKLOCK_CLUSTER_H */
