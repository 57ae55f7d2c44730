/*-------------------------------------------------------------------------
 *
 * session_settings.h
 *		The settings that the ZooKeeper session was opened with.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_SETTINGS_H
#define ZKLOCK_SESSION_SETTINGS_H

/* Stores the current settings, for a session about to be opened.  May throw. */
extern void zklock_note_session_settings(void);

/* Has a setting another value now?  Setting the same value again is no change. */
extern bool zklock_session_settings_changed(void);

/*
 * Returns the name of a setting whose value differs because of SET, or of a function's
 * SET clause.  Returns NULL if no setting differs, or only because of the configuration.
 */
extern const char *zklock_session_settings_conflict(void);

#endif							/* ZKLOCK_SESSION_SETTINGS_H */
