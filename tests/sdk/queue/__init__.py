"""The queue service through the public SDKs, and through a client that sends anything."""
