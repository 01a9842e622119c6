"""How functions run, in four rooms, each inside the one before: fleet, node, process, backends."""
