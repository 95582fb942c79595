"""Background jobs, which run in bounded steps."""
