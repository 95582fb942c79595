"""A transaction that counts what an operation reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from etagere.engine.interface import FILTERED_SCAN_BYTES_MAX, Counted, FilteredRows, ReadTxn
from etagere.engine.records import Collection, K, R, Span


class CountingTxn:
    """A read transaction that counts the rows it returns."""

    def __init__(self, txn: ReadTxn) -> None:
        self._txn = txn
        self.rows = 0
        self.bytes_max = 0
        """The maximum number of bytes filtered in one call."""

    @property
    def now(self) -> int:
        return self._txn.now

    @property
    def steady_now(self) -> int:
        return self._txn.steady_now

    @property
    def is_overdue(self) -> bool:
        return self._txn.is_overdue

    def get(self, collection: Collection[K, R], key: K) -> R | None:
        return self._txn.get(collection, key)

    def get_all(self, collection: Collection[K, R], keys: Sequence[K]) -> list[R | None]:
        return self._txn.get_all(collection, keys)

    def scan(
        self, collection: Collection[K, R], span: Span, limit: int, *, reverse: bool = False
    ) -> list[tuple[K, R]]:
        found = self._txn.scan(collection, span, limit, reverse=reverse)
        self.rows += len(found)
        return found

    def scan_filtered(
        self,
        collection: Collection[K, R],
        span: Span,
        limit: int,
        passes: Callable[[R], bool],
        bytes_max: int = FILTERED_SCAN_BYTES_MAX,
    ) -> FilteredRows[K, R]:
        filtered = self._txn.scan_filtered(collection, span, limit, passes, bytes_max)
        self.rows += filtered.seen
        self.bytes_max = max(self.bytes_max, filtered.seen_bytes)
        return filtered

    def get_filtered(
        self, collection: Collection[K, R], keys: Sequence[K], passes: Callable[[R], bool]
    ) -> FilteredRows[K, R]:
        filtered = self._txn.get_filtered(collection, keys, passes)
        self.rows += filtered.seen
        return filtered

    def count(self, collection: Collection[K, R], span: Span, limit: int) -> Counted:
        return self._txn.count(collection, span, limit)
