"""Compares our responses with those of the real service in public test recordings."""
