"""Histories of the file service."""
