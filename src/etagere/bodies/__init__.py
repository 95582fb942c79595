"""The bytes of objects: immutable extents in segments, and their records in the ledger."""
