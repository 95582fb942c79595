"""The ledger: every record, transactional, behind one narrow interface."""
