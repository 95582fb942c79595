"""The blob service over REST, without a server."""
