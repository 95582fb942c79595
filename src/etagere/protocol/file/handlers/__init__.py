"""The handlers of the file service: one function per operation, each named in its row."""
