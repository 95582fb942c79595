"""Reads of anonymous callers."""

from __future__ import annotations

from etagere.auth.permissions import Permit, Public
from etagere.engine.interface import ReadTxn
from etagere.protocol.blob.permitted import permitted
from tests.protocol.blob.exchanges import CONTAINER, VERSION


def read_something(_txn: ReadTxn, _command: None) -> None: ...


def test_reads_of_anonymous_callers_have_the_names_of_their_operations() -> None:
    """Engines schedule them by these names, and note which of them scan."""
    for public in (Public.NOTHING, Public.BLOB):
        operation = permitted(Permit(public=public), VERSION, read_something, CONTAINER)
        assert operation.__qualname__ == "read_something"
