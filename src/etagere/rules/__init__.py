"""The rules of the services, as pure functions and tables: no I/O, no clock, no transaction."""
