"""What can be done: one verb is one function is one transaction."""
