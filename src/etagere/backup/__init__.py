"""Backups of a data directory, and their restoration."""
