"""Runs Samba's smbtorture against this server."""
