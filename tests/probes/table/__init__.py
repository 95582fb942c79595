"""Raw requests against the table service."""
