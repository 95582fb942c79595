"""The implementation of `etagere check`: compares the ledger with itself and with the segments."""
