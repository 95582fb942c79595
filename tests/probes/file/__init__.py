"""Probes of the file service."""
