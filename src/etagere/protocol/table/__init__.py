"""The REST interface of the table service."""
