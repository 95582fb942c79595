"""The queue service: queues and messages."""
