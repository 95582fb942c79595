"""Reference models of the store, and helpers that drive it from several processes."""
