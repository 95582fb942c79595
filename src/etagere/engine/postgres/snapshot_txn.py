"""The read transaction of operations that scan or take long; they run in threads.

If an operation was first run on cached records, it is known what it looks at first. That is
fetched in the first round trip.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from etagere.engine.filtering import Row, filter_scanned
from etagere.engine.interface import FILTERED_SCAN_BYTES_MAX, Counted, FilteredRows
from etagere.engine.postgres import schema
from etagere.engine.postgres.binary import bigint, bigint_array, bytea_array, to_int
from etagere.engine.postgres.record_cache import (
    ABSENT,
    UNKNOWN,
    CachedRecord,
    RecordLookups,
    decode_cached,
)
from etagere.engine.postgres.snapshot_connection import Query, Result, SnapshotConnection
from etagere.engine.records import Collection, K, Layout, R, RecordKey, Span

_SLICE_ROWS: Final = {Layout.SMALL: 128, Layout.LARGE: 8}
"""The rows that a scan with a limit in bytes fetches first, when it does not know their size."""
_SLICE_ROWS_MAX: Final = 1_000


class Scan(NamedTuple):
    """The arguments of a scan."""

    collection: Collection[Any, Any]
    span: Span
    limit: int
    reverse: bool = False

    @property
    def query(self) -> Query:
        statements = schema.statements(self.collection)
        sql = statements.scan_reverse if self.reverse else statements.scan
        return Query(sql, (*_bounds(self.span), bigint(self.limit)))


def first_slice(collection: Collection[Any, Any], span: Span, limit: int) -> Scan:
    """Returns the first scan of a filtered scan."""
    return Scan(collection, span, min(limit, _SLICE_ROWS[collection.layout]))


class Expected(NamedTuple):
    """What an operation is expected to look at."""

    records: Mapping[RecordKey, CachedRecord]
    scan: Scan | None = None


NOTHING_EXPECTED: Final = Expected({})


class SnapshotTxn(RecordLookups):
    """A read transaction in one snapshot."""

    __slots__ = ("_began", "_connection", "_expected", "_found", "_scanned", "_seconds_max")

    def __init__(
        self,
        connection: SnapshotConnection,
        seconds_max: float,
        expected: Expected = NOTHING_EXPECTED,
    ) -> None:
        self._connection = connection
        self._began = time.monotonic()
        self._seconds_max = seconds_max
        self._expected = expected
        self._found: dict[RecordKey, CachedRecord] = {}
        """Records of this snapshot."""
        self._scanned: dict[Scan, Result] = {}

    @property
    def now(self) -> int:
        return self._connection.instant.now

    @property
    def steady_now(self) -> int:
        return self._connection.instant.steady_now

    @property
    def is_overdue(self) -> bool:
        return time.monotonic() - self._began >= self._seconds_max

    def get(self, collection: Collection[K, R], key: K) -> R | None:
        record: R | None = self._find_all(collection, (key,))[0].record
        return record

    def scan(
        self, collection: Collection[K, R], span: Span, limit: int, *, reverse: bool = False
    ) -> list[tuple[K, R]]:
        rows = self._rows(Scan(collection, span, limit, reverse))
        decode = collection.decode
        keys = collection.unpack_all([key for key, _ in rows])
        return list(zip(keys, [decode(value) for _, value in rows], strict=True))

    def scan_filtered(
        self,
        collection: Collection[K, R],
        span: Span,
        limit: int,
        passes: Callable[[R], bool],
        bytes_max: int = FILTERED_SCAN_BYTES_MAX,
    ) -> FilteredRows[K, R]:
        scanned = self._slices(collection, span, limit, bytes_max)
        return filter_scanned(collection, scanned, span, limit, passes, bytes_max)

    def count(self, collection: Collection[K, R], span: Span, limit: int) -> Counted:
        sql = schema.statements(collection).count_rows
        (result,) = self._connection.query([Query(sql, (*_bounds(span), bigint(limit)))])
        value = result.get_value
        found = to_int(value(0, 0))
        if found < limit or not found:
            return Counted(found, None)
        last = (value(0, 1) or b"") + (value(0, 2) or b"")
        return Counted(found, Span(last + b"\x00", span.stop))

    # Queries

    def _fetch_expected(self) -> None:
        records, scan = self._expected
        self._expected = NOTHING_EXPECTED
        groups: dict[Collection[Any, Any], list[tuple[RecordKey, CachedRecord]]] = {}
        for record_key, known in records.items():
            groups.setdefault(record_key[0], []).append((record_key, known))
        lookups = [_Lookup(collection, group) for collection, group in groups.items()]
        queries = [lookup.query for lookup in lookups]
        if scan is not None:
            queries.append(scan.query)
        results = self._connection.query(queries)
        if scan is not None:
            self._scanned[scan] = results.pop()
        for lookup, result in zip(lookups, results, strict=True):
            self._found.update(lookup.found(result))

    def _find_all(
        self, collection: Collection[Any, Any], keys: Sequence[Any]
    ) -> list[CachedRecord]:
        if self._expected is not NOTHING_EXPECTED:
            self._fetch_expected()
        record_keys: list[RecordKey] = [(collection, collection.pack(key)) for key in keys]
        found = self._found
        others = [(record_key, UNKNOWN) for record_key in record_keys if record_key not in found]
        if others:
            lookup = _Lookup(collection, others)
            found = {**found, **lookup.found(self._connection.query([lookup.query])[0])}
        return [found[record_key] for record_key in record_keys]

    def _rows(self, scan: Scan) -> list[Row]:
        if self._expected is not NOTHING_EXPECTED:
            self._fetch_expected()
        result = self._scanned.pop(scan, None) or self._connection.query([scan.query])[0]
        value = result.get_value
        return [
            ((value(row, 0) or b"") + (value(row, 1) or b""), value(row, 3) or b"")
            for row in range(result.ntuples)
        ]

    def _slices(
        self, collection: Collection[Any, Any], span: Span, limit: int, bytes_max: int
    ) -> Iterator[Row]:
        """Yields the rows of a span. Fetches them in slices, so that not much more is fetched than
        a caller takes that stops at a number of bytes."""
        scan = first_slice(collection, span, limit)
        yielded = yielded_bytes = 0
        while scan.limit:
            rows = self._rows(scan)
            for row in rows:
                yielded_bytes += len(row[1])
                yield row
            yielded += len(rows)
            if len(rows) < scan.limit:
                return
            fitting = (bytes_max - yielded_bytes) * yielded // max(1, yielded_bytes) + 1
            next_rows = max(1, min(fitting, 4 * scan.limit, _SLICE_ROWS_MAX))
            rest = Span(rows[-1][0] + b"\x00", span.stop)
            scan = Scan(collection, rest, min(next_rows, limit - yielded))


class _Lookup:
    """A query for records by their keys, of which some may be cached."""

    __slots__ = ("_collection", "_known")

    def __init__(
        self, collection: Collection[Any, Any], known: Sequence[tuple[RecordKey, CachedRecord]]
    ) -> None:
        self._collection = collection
        self._known = known

    @property
    def query(self) -> Query:
        stored = [schema.split(packed) for (_, packed), _ in self._known]
        return Query(
            schema.statements(self._collection).known,
            (
                bytea_array([each.key for each in stored]),
                bytea_array([each.digest for each in stored]),
                bigint_array([known.version for _, known in self._known]),
            ),
        )

    def found(self, result: Result) -> dict[RecordKey, CachedRecord]:
        """Returns the state of the records, present or absent."""
        found = {record_key: ABSENT for record_key, _ in self._known}
        value = result.get_value
        for row in range(result.ntuples):
            record_key, known = self._known[to_int(value(row, 0)) - 1]
            version, encoded = to_int(value(row, 1)), value(row, 2)
            is_known = encoded is None and version == known.version
            found[record_key] = (
                known if is_known else decode_cached(self._collection, version, encoded)
            )
        return found


def _bounds(span: Span) -> tuple[bytes, bytes, bytes, bytes]:
    return *schema.bound(span.start), *schema.bound(span.stop)
