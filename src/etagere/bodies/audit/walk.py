"""A complete check: its parts, in the order in which they depend on each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from etagere.bodies.audit import contents, extents, maps, segments
from etagere.bodies.audit.audited_segments import AuditedFiles, AuditedSegments
from etagere.bodies.audit.checksums import check_bytes
from etagere.bodies.audit.findings import Report
from etagere.bodies.audit.indexes import Index, check_indexes
from etagere.bodies.audit.snapshot import (
    Audit,
    CannotCheck,
    check_database,
    check_tables,
    require_ledger,
)
from etagere.bodies.contents import (
    BLOCK_LISTS,
    CHUNK_SHARERS,
    CHUNKS,
    CONTENT_SHARERS,
    CONTENTS_TO_REAP,
    COUNTED_DEAD,
    COUNTERS,
    DEAD_TOTALS,
    EXTENTS,
    HOLDERS,
    INLINE,
    MOVES,
    SEGMENTS,
    UNCOUNTED_DEAD,
)
from etagere.bodies.maps import (
    FORMER_INTERVALS,
    GENERATIONS,
    INTERVAL_MAPS,
    INTERVALS,
    MAPS_TO_FLATTEN,
    MAPS_TO_REAP,
)
from etagere.config import Config
from etagere.coordination.local import LocalCoordinator
from etagere.engine import snapshots
from etagere.engine.ledger import database_path
from etagere.engine.records import COLLECTIONS
from etagere.engine.snapshots import Progress

_COMPARED = {
    INLINE,
    BLOCK_LISTS,
    CHUNKS,
    CONTENT_SHARERS,
    CHUNK_SHARERS,
    CONTENTS_TO_REAP,
    INTERVAL_MAPS,
    INTERVALS,
    FORMER_INTERVALS,
    GENERATIONS,
    MAPS_TO_REAP,
    MAPS_TO_FLATTEN,
    EXTENTS,
    MOVES,
    COUNTED_DEAD,
    DEAD_TOTALS,
    UNCOUNTED_DEAD,
    SEGMENTS,
    COUNTERS,
}
"""The collections that a part of the check reads by itself."""


def _no_progress(_phase: str, _done: int, _total: int) -> None:
    pass


def check(
    directory: Path,
    config: Config | None = None,
    *,
    fast: bool = False,
    indexes: Sequence[Index] = (),
    audits: Sequence[tuple[Callable[[Audit], None], str]] = (),
    progress: Progress = _no_progress,
    open_segments: Callable[[], AuditedSegments] | None = None,
) -> Report:
    """Checks a data directory; with `fast`, without the bytes of the segments. `indexes` describes
    the indexes to check, and `audits` are further parts with their names. `open_segments` opens the
    segments, if they are not in the directory. A server may be running.

    Raises `CannotCheck`, `NotALedger` or `SchemaTooNew` if the directory cannot be checked.
    """
    require_ledger(directory)
    try:
        coordinator = LocalCoordinator(directory)
    except OSError as error:
        path = error.filename or directory
        raise CannotCheck(f"{path} cannot be written: {error.strerror}") from error
    try:
        # Like every reader, the check pins first, so that the segments of its snapshot stay on
        # disk.
        with coordinator.pin():
            stored = AuditedFiles(directory) if open_segments is None else open_segments()
            with closing(stored):
                names = stored.list()
                with closing(Audit(directory, config or Config(), progress, stored.where)) as audit:
                    parts = _parts(stored, names, indexes, audits)
                    return _walk(audit, parts, None if fast else stored)
    finally:
        coordinator.close()


_Part = tuple[Callable[[Audit], None], str]
"""A part of the check, and its name."""


def _parts(
    stored: AuditedSegments,
    names: dict[str, int],
    indexes: Sequence[Index],
    audits: Sequence[_Part],
) -> Sequence[_Part]:
    """Returns the parts of a check. `names` are what is stored of segments, with their sizes."""
    return (
        (contents.check_holders, "holders"),
        (_read_others, "records"),
        (contents.check_inline, "bytes in the ledger"),
        (contents.check_contents_to_reap, "contents that nobody holds"),
        (contents.check_lists, "block lists"),
        (contents.check_chunks, "chunks"),
        (contents.check_sharers, "sharers"),
        (maps.check_maps, "interval maps"),
        (partial(check_indexes, indexes=indexes), "indexes"),
        *audits,
        (extents.check_moves, "moves"),
        (extents.check_references, "extents"),
        (partial(segments.check_segments, stored=stored, names=names), "segments"),
    )


def _walk(audit: Audit, parts: Sequence[_Part], read_from: AuditedSegments | None) -> Report:
    """Runs the parts of a check. `read_from` are the segments whose bytes are verified."""
    audit.attempt(check_database, "pages")
    try:
        check_tables(audit)
    except snapshots.Corrupt as error:
        path = database_path(audit.directory)
        raise CannotCheck(f"{path} is too damaged to be checked; restore it ({error})") from error
    for part, name in parts:
        audit.attempt(part, name)
    if read_from is not None:
        audit.attempt(partial(check_bytes, stored=read_from), "checksums")
    return audit.conclude()


def _read_others(audit: Audit) -> None:
    """Verifies that the other records are readable."""
    walked = _COMPARED | {holder.collection for holder in HOLDERS}
    for collection in COLLECTIONS.values():
        if collection not in walked:
            for _ in audit.rows(collection):
                pass
