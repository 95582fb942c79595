"""Histories of concurrent clients, and a judge of whether a store may have behaved like that."""
