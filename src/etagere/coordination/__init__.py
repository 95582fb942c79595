"""How the processes that serve one store find out about each other."""
