"""HTTP/1.1, once for all services."""
