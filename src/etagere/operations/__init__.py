"""The operations: one function per verb, run in one transaction."""
