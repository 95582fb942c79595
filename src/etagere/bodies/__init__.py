"""The bytes: immutable extents in segments, and the ledger's account of them."""
