"""Effects of hostile clients on others: latency, memory, descriptors and disk space."""
