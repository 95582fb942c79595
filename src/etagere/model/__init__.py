"""Data types: immutable records, commands and results."""
