"""Opening the ledger in a database: whether there is one, and from where it is reached."""

from __future__ import annotations

import socket
from typing import Any, Final

import psycopg

from etagere.engine.interface import Fault, FaultReason
from etagere.engine.postgres import schema
from etagere.engine.postgres.connecting import Database, connect_writer, describe

_LOOPBACK: Final = "127.0.0.1"


INCOMING_SUFFIX: Final = "_incoming"
"""Added to the name of a schema while a ledger is loaded into it."""


class NoLedger(Exception):
    """The database has no ledger."""


class LedgerIncomplete(Exception):
    """A ledger is being loaded into the database, or that was interrupted."""


def prepare_ledger(database: Database, *, create: bool) -> str:
    """Creates the tables if `create` is set, and returns the address that this machine reaches the
    ledger from. Raises `NoLedger`, `LedgerIncomplete`, `Fault` or `SchemaTooNew`."""
    connection = connect_writer(database, schema.ANSWER_SECONDS_MAX)
    try:
        with connection:
            if not schema.has_tables(connection):
                _require_no_load(connection, database.schema)
                if not create:
                    raise NoLedger
            if create:
                schema.create(connection, database.schema)
            return _local_address(connection)
    except psycopg.Error as error:
        raise Fault(FaultReason.UNAVAILABLE, describe(error)) from None


def _require_no_load(connection: psycopg.Connection[Any], name: str) -> None:
    query = "SELECT FROM pg_catalog.pg_namespace WHERE nspname = %s"
    if connection.execute(query, (f"{name}{INCOMING_SUFFIX}",)).fetchone() is not None:
        raise LedgerIncomplete


def _local_address(connection: psycopg.Connection[Any]) -> str:
    """Returns the address of this end of a connection; loopback if it is a UNIX socket."""
    with socket.socket(fileno=socket.dup(connection.fileno())) as own:
        if own.family == socket.AF_UNIX:
            return _LOOPBACK
        host: str = own.getsockname()[0]
        return host
