/*-------------------------------------------------------------------------
 *
 * observed.c
 *		A scene that counts what the callbacks report about holds.
 *
 *-------------------------------------------------------------------------
 */
#include "observed.h"

int			losses_reported;
int			revocations_reported;

static void
on_loss_io(void)
{
	losses_reported++;
}

static void
on_revoke_io(void)
{
	revocations_reported++;
}

void
begin_telling(int n_parties)
{
	scene_begin(0);
	losses_reported = 0;
	revocations_reported = 0;
	scene_config.on_loss_io = on_loss_io;
	scene_config.on_revoke_io = on_revoke_io;
	for (int i = 0; i < n_parties; i++)
		scene_join(&parties[i]);
}
