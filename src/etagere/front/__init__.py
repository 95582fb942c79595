"""Front ends: the processes that serve requests."""
