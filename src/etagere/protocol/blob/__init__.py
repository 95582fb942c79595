"""The REST interface of the blob service."""
