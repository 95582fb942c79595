"""Relaying requests to the nodes of other cells."""
