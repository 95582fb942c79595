"""Bodies: what is written and read between the bytes of a message and the model."""
