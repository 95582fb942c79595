"""The engine whose ledger is in PostgreSQL, for servers on several machines.

Imported only when it is used: it needs psycopg, which is an optional dependency.
"""
