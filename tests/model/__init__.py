"""Models of what the store does, and the means to drive it from several processes."""
