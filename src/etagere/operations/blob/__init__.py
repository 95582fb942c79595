"""The blob service: containers and blobs."""
