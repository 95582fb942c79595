"""Histories of the table service."""
