"""A node: the processes of one machine that serve a store."""
