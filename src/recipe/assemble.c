/*-------------------------------------------------------------------------
 *
 * assemble.c
 *		Passes the events of a session to all layers above, in one order; the only file
 *		that depends on all layers.
 *
 *-------------------------------------------------------------------------
 */
#include "recipe/deadlock/detector.h"

void
zkl__on_connected(ZklSession *session)
{
	zkl__nodes_relist(session);
	zkl__hold_watches_lost(session);
	zkl__permits_connected(session);
}

void
zkl__on_watch(ZklSession *session, const char *path)
{
	zkl__nodes_watched(session, path);
	zkl__permits_watched(session, path);
}

void
zkl__on_advance(ZklSession *session)
{
	zkl__nodes_advance(session);
	zkl__empty_parents_advance(session);
	zkl__requests_advance(session);
	zkl__confirm_advance(session);
}

void
zkl__on_timer(ZklSession *session)
{
	zkl__empty_parents_advance(session);
	zkl__hold_watches_due(session);
	zkl__kept_due(session);
}

void
zkl__on_session_lost(ZklSession *session)
{
	zkl__locks_lost(session);
}

void
zkl__on_close(ZklSession *session)
{
	zkl__empty_parents_close(session);
}

void
zkl__on_free(ZklSession *session)
{
	zkl__elision_forget(session);
	zkl__nodes_free(session);
	zkl__empty_parents_free(session);
	zkl__requests_free(session);
	zkl__locks_free(session);
}
