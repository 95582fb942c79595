"""Benchmarks: what the store reaches of what its parts can do. Run by `make bench`."""
