"""The cache of records that a process has, with their versions.

Another process may have changed a record in the meantime, so whoever uses a cached record has the
database compare the versions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from etagere.config import KIB, MIB
from etagere.engine.interface import FilteredRows
from etagere.engine.records import Collection, K, R, RecordKey
from etagere.model.base import Record


class CachedRecord(NamedTuple):
    """The state of a record, present or absent, at some time in the past."""

    version: int
    """The stamp of the change that wrote it; `ABSENT_VERSION` if there was no record."""
    record: Any
    """None if there was no record."""
    size: int
    """The length of its encoding, in bytes."""


ABSENT_VERSION: Final = 0
UNKNOWN_VERSION: Final = -1
"""Differs from the version of every record and from that of an absent one."""
ABSENT: Final = CachedRecord(ABSENT_VERSION, None, 0)
UNKNOWN: Final = CachedRecord(UNKNOWN_VERSION, None, 0)

RECORD_BYTES_MAX: Final = 64 * KIB
"""Longer records are not cached."""
_GENERATION_RECORDS_MAX: Final = 8_192
_GENERATION_BYTES_MAX: Final = 8 * MIB
_OVERHEAD_BYTES: Final = 512
"""The memory that a cached record needs besides its encoding and its key."""


def decode_cached(
    collection: Collection[Any, Any], version: int, value: bytes | None
) -> CachedRecord:
    """Returns the cached record for a row of the database."""
    record: Record | None = None if value is None else collection.decode(value)
    return CachedRecord(version, record, 0 if value is None else len(value))


class RecordLookups(ABC):
    """The lookups of a read transaction by several keys."""

    __slots__ = ()

    @abstractmethod
    def _find_all(self, collection: Collection[K, Any], keys: Sequence[K]) -> list[CachedRecord]:
        """Returns the state of the records with these keys."""

    def get_all(self, collection: Collection[K, R], keys: Sequence[K]) -> list[R | None]:
        return [found.record for found in self._find_all(collection, keys)]

    def get_filtered(
        self, collection: Collection[K, R], keys: Sequence[K], passes: Callable[[R], bool]
    ) -> FilteredRows[K, R]:
        found = self._find_all(collection, keys)
        present = [pair for pair in zip(keys, found, strict=True) if pair[1].record is not None]
        passed = [(key, entry) for key, entry in present if passes(entry.record)]
        return FilteredRows(
            [(key, entry.record) for key, entry in passed],
            [entry.size for _, entry in passed],
            len(present),
            sum([entry.size for _, entry in present]),
            None,
        )


class RecordCache:
    """The records that were used most recently, bounded in number and in bytes.

    There are two generations. Entries move to the recent one when they are used; when that is
    full, it replaces the older one. This costs less than exact order on every use.
    """

    __slots__ = ("_bytes_max", "_older", "_recent", "_recent_bytes", "_records_max")

    def __init__(
        self,
        generation_records_max: int = _GENERATION_RECORDS_MAX,
        generation_bytes_max: int = _GENERATION_BYTES_MAX,
    ) -> None:
        self._records_max = generation_records_max
        self._bytes_max = generation_bytes_max
        self._recent: dict[RecordKey, CachedRecord] = {}
        self._recent_bytes = 0
        self._older: dict[RecordKey, CachedRecord] = {}

    def get(self, record_key: RecordKey) -> CachedRecord | None:
        entry = self._recent.get(record_key)
        if entry is None:
            entry = self._older.get(record_key)
            if entry is not None:
                self.put(record_key, entry)
        return entry

    def put(self, record_key: RecordKey, entry: CachedRecord) -> None:
        recent = self._recent
        if entry.size > RECORD_BYTES_MAX:
            self.forget(record_key)
            return
        previous = recent.get(record_key)
        overhead = _OVERHEAD_BYTES + len(record_key[1])
        if previous is not None:
            self._recent_bytes -= previous.size + overhead
        size = entry.size + overhead
        if len(recent) >= self._records_max or self._recent_bytes + size > self._bytes_max:
            self._older = recent
            recent = self._recent = {}
            self._recent_bytes = 0
        self._recent_bytes += size
        recent[record_key] = entry

    def forget(self, record_key: RecordKey) -> None:
        previous = self._recent.pop(record_key, None)
        if previous is not None:
            self._recent_bytes -= previous.size + _OVERHEAD_BYTES + len(record_key[1])
        self._older.pop(record_key, None)

    def clear(self) -> None:
        self._recent = {}
        self._recent_bytes = 0
        self._older = {}

    def __len__(self) -> int:
        return len(self._recent) + len(self._older.keys() - self._recent.keys())
