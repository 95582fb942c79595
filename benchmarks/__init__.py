"""Benchmarks of the server and of the store. Run by `make bench`."""
