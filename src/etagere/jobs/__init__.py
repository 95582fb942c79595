"""What goes on beside requests: bounded steps, again and again."""
