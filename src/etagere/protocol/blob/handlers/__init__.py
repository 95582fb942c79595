"""The handlers of the blob service: one function per operation, each named in its row."""
