"""The blob service through the public Python SDK."""
