"""Connections of any protocol: listening, their number, and the memory that they may use."""
