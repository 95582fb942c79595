"""Raw requests against the blob service."""
