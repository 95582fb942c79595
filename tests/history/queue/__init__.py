"""Histories of the queue service."""
