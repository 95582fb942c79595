"""Pages of blobs, flat or by a delimiter.

By a delimiter a page costs what it shows: a prefix that stands for many blobs is shown once,
and the scan goes on behind the last of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from etagere.engine.interface import ReadTxn
from etagere.engine.records import Span
from etagere.model.blobs import Blob, BlobPage, ListBlobs
from etagere.operations.blob.blobs import BLOBS
from etagere.operations.blob.containers import find

_STEP_MIN = 16
_STEP_MAX = 1_024

_Entry = tuple[str, Blob | None]


def list_blobs(txn: ReadTxn, command: ListBlobs) -> BlobPage:
    container_id = find(txn, command.container).id
    span = BLOBS.under((container_id,), command.prefix)
    if command.marker:
        span = BLOBS.starting(span, (container_id, command.marker))
    if command.delimiter:
        found = _by_delimiter(txn, container_id, span, command)
        entries = list(islice(found, command.limit + 1))
    else:
        rows = txn.scan(BLOBS, span, command.limit + 1)
        entries = [(name, blob) for (_, name), blob in rows]
    following = entries.pop()[0] if len(entries) > command.limit else ""
    return BlobPage(txn.now, tuple(entries), following)


def _by_delimiter(
    txn: ReadTxn, container_id: bytes, span: Span, command: ListBlobs
) -> Iterator[_Entry]:
    """Looks a few rows ahead: far where there are blobs to show, not far where there are
    prefixes, since what lies behind a prefix is skipped."""
    step = _STEP_MIN
    while rows := txn.scan(BLOBS, span, step):
        group = ""
        for (_, name), blob in rows:
            if group and name.startswith(group):
                continue
            end = name.find(command.delimiter, len(command.prefix))
            group = name[: end + len(command.delimiter)] if end >= 0 else ""
            yield (group, None) if group else (name, blob)
        if len(rows) < step:
            return
        if group:
            span = Span(BLOBS.under((container_id,), group).stop, span.stop)
            step = _STEP_MIN
        else:
            span = BLOBS.after(span, rows[-1][0])
            step = min(_STEP_MAX, step * 4)
