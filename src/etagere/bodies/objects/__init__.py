"""Bodies in an object store that several machines share."""
