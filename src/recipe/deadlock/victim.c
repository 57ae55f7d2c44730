/*-------------------------------------------------------------------------
 *
 * victim.c
 *		Chooses the victim of a deadlock among the reported waits.
 *
 * The victim is the newest reporter among the members that hold what another
 * member waits for: its failure breaks a cycle through that member.  A session
 * that only keeps a place in a queue is chosen if there is no such member.  Local
 * waiters then wait behind it for the same place, and it requeues behind them
 * instead of failing (deadlock.c).
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "victim.h"

/* Returns a malloc'd array with each node's rank, or NULL if memory is exhausted. */
static ZklRank *
rank_nodes(const ZklWaitReports *reports, ZklCircle members)
{
	ZklRank    *ranks = malloc(((size_t) reports->n + 1) * sizeof(ZklRank));

	for (int i = 0; ranks && i < reports->n; i++)
		ranks[i] = ZKL_RANK_PLACE;
	for (int i = 0; ranks && i < reports->n_node_sets; i++)
	{
		const ZklNodeSet *node_set = &reports->node_sets[i];

		if (!zkl_is_in_circle(members, node_set->waiter))
			continue;
		for (int j = 0; j < node_set->n; j++)
		{
			const ZklWaitNode *node = zkl_reports_find(reports, node_set->any_of[j]);

			if (node && !node_set->only_for_place)
				ranks[node - reports->nodes] = ZKL_RANK_HOLDER;
			else if (node && node == &reports->nodes[node_set->source] &&
					 ranks[node - reports->nodes] == ZKL_RANK_PLACE)
				ranks[node - reports->nodes] = ZKL_RANK_LOCAL_PLACE;
		}
	}
	return ranks;
}

/* Chooses the newest of the members with the lowest rank. */
static void
choose(const ZklWaitReports *reports, const ZklWaitNode *mine, ZklChoice *v)
{
	ZklCircle	members = {v->members, v->n};
	ZklRank    *ranks = rank_nodes(reports, members);

	v->mine_is_last = true;
	for (int i = 0; ranks && i < reports->n; i++)
	{
		const ZklWaitNode *node = &reports->nodes[i];

		if (!zkl_is_in_circle(members, node->session))
			continue;
		if (node == mine)
			v->rank = ranks[i];
		else if (node->is_victim_claim && (!mine->is_victim_claim || zkl_wait_is_earlier(node, mine)))
			v->other_claims = true;
		if (node != mine && zkl_wait_is_earlier(mine, node))
			v->mine_is_last = false;
		if (v->best == NULL || ranks[i] < v->best_rank ||
			(ranks[i] == v->best_rank && zkl_wait_is_earlier(v->best, node)))
		{
			v->best = node;
			v->best_rank = ranks[i];
		}
	}
	free(ranks);
}

void
zkl_choose(const ZklWaitReports *reports, uint64_t me, const char *name,
		   ZklCircle suspects, ZklChoice *v)
{
	ZklCircle	everybody = {NULL, 0};
	const ZklWaitNode *mine = zkl_reports_find(reports, me);

	memset(v, 0, sizeof(*v));
	v->is_mine = mine && strcmp(mine->name, name) == 0;
	if (!v->is_mine)
		return;
	v->n = zkl_find_deadlock(reports->node_sets, reports->n_node_sets, me,
							 mine->is_victim_claim ? suspects : everybody, &v->members);
	if (v->n > 0)
		choose(reports, mine, v);
}
