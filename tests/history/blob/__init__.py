"""Histories of the blob service."""
