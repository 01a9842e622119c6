"""How the world reaches functions: the HTTP gateway, the command line and the process tree of one machine."""
