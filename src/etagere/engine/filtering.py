"""Filtered reads over the rows of a database: what `scan_filtered` and `get_filtered` return."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from etagere.engine.interface import FilteredRows
from etagere.engine.records import Collection, K, R, Span

Row = tuple[bytes, bytes]
"""An encoded key and an encoded record."""


def filter_scanned(
    collection: Collection[K, R],
    scanned: Iterable[Row],
    span: Span,
    limit: int,
    passes: Callable[[R], bool],
    bytes_max: int,
) -> FilteredRows[K, R]:
    """Filters the rows of a span, at most `limit`, in the order of their keys. Stops at the row
    that reaches `bytes_max`."""
    rows: list[Row] = []
    seen_bytes = 0
    for row in scanned:
        rows.append(row)
        seen_bytes += len(row[1])
        if seen_bytes >= bytes_max:
            break
    is_cut = len(rows) == limit or seen_bytes >= bytes_max
    rest = Span(rows[-1][0] + b"\x00", span.stop) if rows and is_cut else None
    decode = collection.decode
    passed = [(key, record, len(value)) for key, value in rows if passes(record := decode(value))]
    keys = collection.unpack_all([key for key, _, _ in passed])
    found = [(key, record) for key, (_, record, _) in zip(keys, passed, strict=True)]
    sizes = [size for _, _, size in passed]
    return FilteredRows(found, sizes, len(rows), seen_bytes, rest)


def filter_found(
    collection: Collection[K, R], found: list[tuple[K, bytes]], passes: Callable[[R], bool]
) -> FilteredRows[K, R]:
    """Filters records that were looked up by their keys."""
    decode = collection.decode
    passed = [(key, record, len(value)) for key, value in found if passes(record := decode(value))]
    rows = [(key, record) for key, record, _ in passed]
    sizes = [size for _, _, size in passed]
    return FilteredRows(rows, sizes, len(found), sum([len(value) for _, value in found]), None)
