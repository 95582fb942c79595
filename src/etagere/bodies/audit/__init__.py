"""What `etagere check` does: walks the ledger and the segments, and says what does not agree."""
