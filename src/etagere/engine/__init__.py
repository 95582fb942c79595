"""The ledger: all records, with transactions, behind one small interface."""
