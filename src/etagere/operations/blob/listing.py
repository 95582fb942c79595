"""Listings of blobs, flat or with a delimiter.

With a delimiter, the cost of a page depends on its number of entries: a prefix that stands for many
blobs is shown once, and the scan continues after the last of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from typing import Any

from etagere.engine.interface import ReadTxn, Steps
from etagere.engine.records import Collection, Span
from etagere.model.blobs import NO_SNAPSHOT, BlobEntry, ListBlobs
from etagere.operations import pages
from etagere.operations.blob.collections import BLOBS, SNAPSHOTS, STAGINGS
from etagere.operations.blob.containers import find
from etagere.operations.pages import FilledPage, FillPage, StepSize

_STEP_FIRST = 16
_STEP_MIN = 2

_Named = Collection[tuple[bytes, str], Any]


def list_blobs(
    txn: ReadTxn, command: FillPage[ListBlobs, BlobEntry]
) -> Steps[FilledPage[BlobEntry]]:
    """Lists blobs in the order of their names, with the snapshots of each name before its blob."""
    asked = command.asked
    container_id = find(txn, asked.container).id
    step_size = StepSize()
    slices = _slices(txn, container_id, asked, step_size)
    return pages.fill(txn, command, slices, asked.limit, step_size)


def _slices(
    txn: ReadTxn, container_id: bytes, asked: ListBlobs, step_size: StepSize
) -> Iterator[list[BlobEntry]]:
    """Yields all rows in order, in slices."""
    if not (asked.delimiter or asked.uncommitted or asked.snapshots):
        return _flat(txn, BLOBS, container_id, asked, step_size)
    named: list[_Named] = [BLOBS, STAGINGS] if asked.uncommitted else [BLOBS]
    rows = [_named(txn, collection, container_id, asked, step_size) for collection in named]
    if len(named) > 1:
        rows = [_first_of_each(heapq.merge(*rows, key=_name))]
    if asked.snapshots:
        rows.append(_snapshots(txn, container_id, asked, step_size))
    merged = rows[0] if len(rows) == 1 else heapq.merge(*rows, key=_place)
    return pages.in_slices(merged, step_size)


def _name(entry: BlobEntry) -> str:
    return entry[0]


def _place(entry: BlobEntry) -> tuple[str, int]:
    return entry[0], entry[2]


def _first_of_each(entries: Iterable[BlobEntry]) -> Iterator[BlobEntry]:
    """Yields the first entry of each name: a blob hides uncommitted blocks of its name, and a
    common prefix is listed once."""
    return (next(same) for _, same in groupby(entries, key=_name))


def _named(
    txn: ReadTxn, collection: _Named, container_id: bytes, asked: ListBlobs, step_size: StepSize
) -> Iterator[BlobEntry]:
    if asked.delimiter:
        return _by_delimiter(txn, collection, container_id, asked, step_size)
    return chain.from_iterable(_flat(txn, collection, container_id, asked, step_size))


def _span(collection: _Named, container_id: bytes, asked: ListBlobs) -> Span:
    span = collection.under((container_id,), asked.prefix)
    if asked.start:
        span = collection.starting(span, (container_id, asked.start))
    if asked.end:
        span = Span(span.start, min(span.stop, collection.pack((container_id, asked.end))))
    return span


def _flat(
    txn: ReadTxn, collection: _Named, container_id: bytes, asked: ListBlobs, step_size: StepSize
) -> Iterator[list[BlobEntry]]:
    span = _span(collection, container_id, asked)
    for rows in pages.scan_in_steps(txn, collection, span, asked.limit, step_size):
        yield [(name, found, NO_SNAPSHOT) for (_, name), found in rows]


def _by_delimiter(
    txn: ReadTxn, collection: _Named, container_id: bytes, asked: ListBlobs, step_size: StepSize
) -> Iterator[BlobEntry]:
    """Yields names and prefixes. Reads twice as many rows at once as were used last time, since
    blobs behind a prefix are skipped."""
    span = _span(collection, container_id, asked)
    step = _STEP_FIRST
    while rows := txn.scan(collection, span, step):
        group = ""
        shown = 0
        for (_, name), found in rows:
            if group and name.startswith(group):
                continue
            end = name.find(asked.delimiter, len(asked.prefix))
            group = name[: end + len(asked.delimiter)] if end >= 0 else ""
            shown += 1
            yield (group, None, NO_SNAPSHOT) if group else (name, found, NO_SNAPSHOT)
        if len(rows) < step:
            return
        if group:
            span = Span(collection.under((container_id,), group).stop, span.stop)
        else:
            span = collection.after(span, rows[-1][0])
        step = max(_STEP_MIN, min(step_size.rows, 2 * shown))


def _snapshots(
    txn: ReadTxn, container_id: bytes, asked: ListBlobs, step_size: StepSize
) -> Iterator[BlobEntry]:
    span = SNAPSHOTS.under((container_id,), asked.prefix)
    if asked.start:
        span = SNAPSHOTS.starting(span, (container_id, asked.start, asked.start_snapshot))
    if asked.end:
        span = Span(span.start, min(span.stop, SNAPSHOTS.pack((container_id, asked.end, 0))))
    for rows in pages.scan_in_steps(txn, SNAPSHOTS, span, asked.limit, step_size):
        for (_, name, taken), blob in rows:
            yield name, blob, taken
