"""Scans of whole collections, for work on a store that nothing else uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from etagere.engine.interface import WriteTxn
from etagere.engine.records import Collection, K, R

_ROWS_PER_SCAN: Final = 1_000


def all_rows(txn: WriteTxn, collection: Collection[K, R]) -> Iterator[tuple[K, R]]:
    """Yields all records of a collection. Rows that are put behind the current one are not seen."""
    span = collection.all()
    while rows := txn.scan(collection, span, _ROWS_PER_SCAN):
        yield from rows
        span = collection.after(span, rows[-1][0])
