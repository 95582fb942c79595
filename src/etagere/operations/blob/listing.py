"""Pages of blobs, flat or by a delimiter.

By a delimiter a page costs what it shows: a prefix that stands for many blobs is shown once,
and the scan goes on behind the last of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Any

from etagere.engine.interface import ReadTxn
from etagere.engine.records import Collection, Span
from etagere.model.blobs import NO_SNAPSHOT, BlobEntry, BlobPage, ListBlobs
from etagere.operations.blob.collections import BLOBS, SNAPSHOTS, STAGINGS
from etagere.operations.blob.containers import find

_STEP_MIN = 16
_STEP_MAX = 1_024

_Named = Collection[tuple[bytes, str], Any]


def list_blobs(txn: ReadTxn, command: ListBlobs) -> BlobPage:
    container_id = find(txn, command.container).id
    found = _entries(txn, container_id, command)
    entries = found if isinstance(found, list) else list(islice(found, command.limit + 1))
    following = None
    if len(entries) > command.limit:
        name, _, snapshot = entries.pop()
        following = name, snapshot
    return BlobPage(txn.steady_now, tuple(entries), following)


def _entries(txn: ReadTxn, container_id: bytes, command: ListBlobs) -> Iterable[BlobEntry]:
    """In order: as many as were asked for and one more, at least."""
    named: list[_Named] = [BLOBS, STAGINGS] if command.uncommitted else [BLOBS]
    rows: list[Iterable[BlobEntry]] = [
        _named(txn, collection, container_id, command) for collection in named
    ]
    if len(named) > 1:
        rows = [_first_of_each(heapq.merge(*rows, key=_name))]
    if command.snapshots:
        rows.append(_snapshots(txn, container_id, command))
    return rows[0] if len(rows) == 1 else heapq.merge(*rows, key=_place)


def _name(entry: BlobEntry) -> str:
    return entry[0]


def _place(entry: BlobEntry) -> tuple[str, int]:
    return entry[0], entry[2]


def _first_of_each(entries: Iterator[BlobEntry]) -> Iterator[BlobEntry]:
    """A blob hides blocks of the same name, which are staged for it, and a prefix that both have
    is one."""
    return (next(same) for _, same in groupby(entries, key=_name))


def _named(
    txn: ReadTxn, collection: _Named, container_id: bytes, command: ListBlobs
) -> Iterable[BlobEntry]:
    span = collection.under((container_id,), command.prefix)
    if command.start:
        span = collection.starting(span, (container_id, command.start))
    if command.end:
        span = Span(span.start, min(span.stop, collection.pack((container_id, command.end))))
    if command.delimiter:
        return _by_delimiter(txn, collection, container_id, span, command)
    rows = txn.scan(collection, span, command.limit + 1)
    return [(name, found, NO_SNAPSHOT) for (_, name), found in rows]


def _by_delimiter(
    txn: ReadTxn, collection: _Named, container_id: bytes, span: Span, command: ListBlobs
) -> Iterator[BlobEntry]:
    """Looks a few rows ahead: far where there are blobs to show, not far where there are
    prefixes, since what lies behind a prefix is skipped."""
    step = _STEP_MIN
    while rows := txn.scan(collection, span, step):
        group = ""
        for (_, name), found in rows:
            if group and name.startswith(group):
                continue
            end = name.find(command.delimiter, len(command.prefix))
            group = name[: end + len(command.delimiter)] if end >= 0 else ""
            yield (group, None, NO_SNAPSHOT) if group else (name, found, NO_SNAPSHOT)
        if len(rows) < step:
            return
        if group:
            span = Span(collection.under((container_id,), group).stop, span.stop)
            step = _STEP_MIN
        else:
            span = collection.after(span, rows[-1][0])
            step = min(_STEP_MAX, step * 4)


def _snapshots(txn: ReadTxn, container_id: bytes, command: ListBlobs) -> list[BlobEntry]:
    span = SNAPSHOTS.under((container_id,), command.prefix)
    if command.start:
        span = SNAPSHOTS.starting(span, (container_id, command.start, command.start_snapshot))
    if command.end:
        span = Span(span.start, min(span.stop, SNAPSHOTS.pack((container_id, command.end, 0))))
    rows = txn.scan(SNAPSHOTS, span, command.limit + 1)
    return [(name, blob, taken) for (_, name, taken), blob in rows]
