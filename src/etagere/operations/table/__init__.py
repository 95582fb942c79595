"""The table service: tables and entities."""
