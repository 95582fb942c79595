"""Conformance: Microsoft's own live tests, run against our server by `make conformance`."""
