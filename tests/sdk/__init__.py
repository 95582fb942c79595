"""The blob service as users of the public SDK see it."""
