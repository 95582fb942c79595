"""Blobs through the public Python SDK."""
