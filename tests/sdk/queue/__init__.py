"""The queue service through the public Python SDK, and through raw requests."""
