"""Many machines: the router (the one door, the queue), links, board, autoscaler, roll-outs."""
