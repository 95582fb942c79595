"""Raw requests against the queue service."""
