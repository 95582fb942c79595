"""The protocols of clients: from bytes to operations, and from results to bytes."""
