"""Removal of many rows in steps that are bounded in rows and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from etagere.config import MIB
from etagere.engine.interface import WriteTxn
from etagere.engine.records import ENCODE, Collection, K, R, Span

_STEP_BYTES_MAX: Final = 1 * MIB
_ROWS_PER_SCAN: Final = 4
"""So few because each of them may have 1 MiB."""


class RemovalStep:
    """What one transaction may remove. The number of rows alone does not tell how long other writes
    would have to wait."""

    def __init__(self, rows_max: int) -> None:
        self.left = rows_max
        """How many rows may still be removed. Callers that remove more than these subtract them."""
        self._bytes_left = _STEP_BYTES_MAX

    @property
    def is_over(self) -> bool:
        """Whether the rest is left to the next step, if there is more."""
        return self.left <= 0 or self._bytes_left <= 0

    def rows(
        self, txn: WriteTxn, collection: Collection[K, R], span: Span
    ) -> Iterator[tuple[K, R]]:
        """Yields rows that the caller removes, until none is left or the step is over."""
        while not self.is_over:
            rows = txn.scan(collection, span, _ROWS_PER_SCAN)
            for row in rows:
                if self.left <= 0 or self._bytes_left <= 0:
                    return
                self.left -= 1
                self._bytes_left -= len(ENCODE(row[1]))
                yield row
            if len(rows) < _ROWS_PER_SCAN:
                return
            span = collection.after(span, rows[-1][0])
