"""What may be done to what, as pure functions and tables: no I/O, no clock, no transaction."""
