"""The REST interface of the queue service."""
