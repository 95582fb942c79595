"""Raw, malformed and unauthorized requests against a running server."""
