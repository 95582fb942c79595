"""Attacks on a whole server, over sockets, by clients that keep to no rule."""
