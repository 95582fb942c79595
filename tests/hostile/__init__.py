"""Latency, memory, descriptors and space of the others beside hostile clients."""
