/*-------------------------------------------------------------------------
 *
 * told.c
 *		A scene whose owners count what the threads tell them of what they hold.
 *
 *-------------------------------------------------------------------------
 */
#include "told.h"

int			losses_told;
int			revocations_told;

static void
on_loss_io(void)
{
	losses_told++;
}

static void
on_revoke_io(void)
{
	revocations_told++;
}

void
begin_telling(int n_parties)
{
	scene_begin(0);
	losses_told = 0;
	revocations_told = 0;
	scene_config.on_loss_io = on_loss_io;
	scene_config.on_revoke_io = on_revoke_io;
	for (int i = 0; i < n_parties; i++)
		scene_join(&parties[i]);
}
