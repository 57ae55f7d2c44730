/*-------------------------------------------------------------------------
 *
 * node_state.c
 *		The state that follows for a node from what happens to it: a pure function.
 *
 * queue.h describes the states and has their table.  Nothing else moves a node from one
 * state to another.
 *
 *-------------------------------------------------------------------------
 */
#include "internal.h"

/* While nobody is known to be before the node, or it is known who. */
static ZklNodeState
after_position(ZklNodeState state, ZklNodeEvent event)
{
	switch (event)
	{
		case ON_FIRST:
			return state == NODE_LISTING ? NODE_HELD : NODE_IMPOSSIBLE;
		case ON_NOT_FIRST:
			return state == NODE_LISTING ? NODE_READING : NODE_IMPOSSIBLE;
		case ON_WAITING_WRITER:
			return state == NODE_LISTING ? NODE_MOVING_UP : NODE_IMPOSSIBLE;
		case ON_READ:
			return state == NODE_READING ? NODE_WAITING : NODE_IMPOSSIBLE;
		case ON_CHANGE:
		case ON_CONNECTED:
			return NODE_LISTING;
		default:
			return NODE_IMPOSSIBLE;
	}
}

/* While the node is created, or looked for. */
static ZklNodeState
after_create(ZklNodeState state, ZklNodeEvent event, bool wanted)
{
	switch (event)
	{
		case ON_CREATED:
			return wanted ? NODE_LISTING : NODE_LEAVING;
		case ON_NOT_CREATED:
			return wanted ? NODE_NEW : NODE_GONE;
		case ON_OUTCOME_OPEN:
			return state == NODE_CREATING ? NODE_UNKNOWN : NODE_IMPOSSIBLE;
		case ON_GIVEN_UP:		/* what is to be deleted is not known yet */
		case ON_CONNECTED:
			return state;
		default:
			return NODE_IMPOSSIBLE;
	}
}

/* While the node is renamed: it has the old name, the new one, or one of them. */
static ZklNodeState
after_move(ZklNodeState state, ZklNodeEvent event, bool wanted, bool is_sent)
{
	ZklNodeState done = state == NODE_MOVING_UP ? NODE_LISTING : NODE_HELD;

	switch (event)
	{
		case ON_MOVED:
			return wanted ? done : NODE_LEAVING;
		case ON_NOT_MOVED:		/* a downgrade is repeated, in this state */
			return state == NODE_DOWNGRADING ? NODE_IMPOSSIBLE : wanted ? NODE_LISTING : NODE_LEAVING;
		case ON_GIVEN_UP:
			return is_sent ? state : NODE_LEAVING;
		case ON_CONNECTED:
			return state;
		default:
			return NODE_IMPOSSIBLE;
	}
}

/*
 * Returns the state that follows when this happens to a node in this state; IMPOSSIBLE if
 * it cannot happen.  "wanted": the node was not given up before; "is_sent": the operation of
 * the state is in flight.
 */
ZklNodeState
zkl__node_next(ZklNodeState state, ZklNodeEvent event, bool wanted, bool is_sent)
{
	switch (state)
	{
		case NODE_NEW:
			if (event == ON_CREATING)
				return wanted ? NODE_CREATING : NODE_IMPOSSIBLE;
			return event == ON_GIVEN_UP ? NODE_GONE
				: event == ON_CONNECTED ? NODE_NEW : NODE_IMPOSSIBLE;
		case NODE_CREATING:
		case NODE_UNKNOWN:
			return after_create(state, event, wanted);
		case NODE_LISTING:
		case NODE_READING:
		case NODE_WAITING:
			if (event == ON_GIVEN_UP)
				return NODE_LEAVING;
			return wanted ? after_position(state, event) : NODE_IMPOSSIBLE;
		case NODE_MOVING_UP:
		case NODE_DOWNGRADING:
			return after_move(state, event, wanted, is_sent);
		case NODE_HELD:
			if (event == ON_GIVEN_UP)
				return NODE_LEAVING;
			if (event == ON_REDUCED)
				return wanted ? NODE_DOWNGRADING : NODE_IMPOSSIBLE;
			return wanted && event == ON_CONNECTED ? NODE_HELD : NODE_IMPOSSIBLE;
		case NODE_LEAVING:
			if (event == ON_DELETED)
				return wanted ? NODE_IMPOSSIBLE : NODE_GONE;
			return event == ON_GIVEN_UP || event == ON_CONNECTED ? NODE_LEAVING : NODE_IMPOSSIBLE;
		case NODE_GONE:
			return event == ON_GIVEN_UP || event == ON_CONNECTED ? NODE_GONE : NODE_IMPOSSIBLE;
		case NODE_IMPOSSIBLE:
			break;
	}
	return NODE_IMPOSSIBLE;
}

/*
 * This has happened to the node.  In another state it does not wait for the answer that it
 * waited for; except for the list that was sent right behind its create.
 */
void
zkl__node_take(ZklNode *node, ZklNodeEvent event)
{
	ZklNodeState next = zkl__node_next(node->state, event, node->priv->wanted,
									   node->priv->state_call != NULL);

	ZKL_ASSERT(next != NODE_IMPOSSIBLE);
	if (next == NODE_IMPOSSIBLE)
		return;					/* a node in its old state can be given up */
	if (next != node->state && !(node->state == NODE_CREATING && next == NODE_LISTING))
		node->priv->state_call = NULL;
	node->state = next;
}
