"""Histories of concurrent clients of a server that is killed, and checkers of these histories."""
