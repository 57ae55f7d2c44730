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
begin_observed(int n_parties)
{
	scene_begin(0);
	losses_reported = 0;
	revocations_reported = 0;
	scene_config.on_loss_io = on_loss_io;
	scene_config.on_revoke_io = on_revoke_io;
	for (int i = 0; i < n_parties; i++)
		scene_join(&parties[i]);
}

void
begin_watched(void)
{
	begin_observed(1);
	forget(lock_now(&parties[0], "a", ZKL_MODE_EXCLUSIVE));
	fake_advance(SCENE_TIMEOUT_MS);
}
