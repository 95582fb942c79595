"""Folding: moving inline intervals of interval maps from the ledger to segments.

An inline interval stores its bytes in the ledger. A small append then costs one commit and no write
to a segment. Each content counts its inline intervals, and they are folded before they become many:
a job reads those of a content, writes them to a segment, and replaces them by pieces in one
transaction, if they are still what was read. The bytes of the content do not change.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from awscrt.checksums import crc64nvme
from msgspec.structs import replace

from etagere.bodies import intervals
from etagere.bodies.contents import add_references, create_extents
from etagere.bodies.maps import BodyCorrupt, cut_piece, is_intact, parts
from etagere.config import KIB
from etagere.engine.interface import ReadTxn, WriteTxn
from etagere.model.base import Part
from etagere.model.bodies import Body, Mapped, Piece

BYTES_DUE = 256 * KIB
"""Inline intervals are folded when they have this many bytes in total."""
INTERVALS_DUE = 256
"""Inline intervals are folded when there are this many of them."""
BYTES_MAX = 1024 * KIB
"""The most inline bytes of one content. Readers keep them in memory."""
INTERVALS_MAX = 1024
_FOLDED_BYTES_MAX = 512 * KIB
"""The most that one step folds, so that the writer is soon free again."""
_FOLDED_INTERVALS_MAX = 400
"""The most intervals that one step folds, so that no child map has to be created."""
_SEARCHED_MAX = 2_000


class InlineRun(Part, frozen=True):
    """Adjacent inline intervals."""

    start: int
    end: int


class Fold(Part, frozen=True):
    """The inline intervals to fold in one step."""

    map: bytes
    folded: int
    """The value of the content when these were found."""
    end: int
    """No other inline interval begins before this offset."""
    runs: tuple[InlineRun, ...]
    inline_intervals: int


class Found(NamedTuple):
    """The intervals to fold, and their bytes."""

    fold: Fold
    data: list[bytes]


# When to fold


def has_room(content: Mapped, length: int) -> bool:
    """Returns whether a content may get another inline interval of this length."""
    return content.inline_intervals < INTERVALS_MAX and content.inline_bytes + length <= BYTES_MAX


def became_due(before: Mapped, after: Mapped) -> bool:
    """Returns whether a change makes folding due. Only every 256th does, since one of several
    processes is enough; if that one fails to fold, a later change makes it due again."""
    return (
        after.inline_intervals // INTERVALS_DUE > before.inline_intervals // INTERVALS_DUE
        or after.inline_bytes // BYTES_DUE > before.inline_bytes // BYTES_DUE
    )


def is_due(content: Mapped) -> bool:
    return content.inline_intervals >= INTERVALS_DUE or content.inline_bytes >= BYTES_DUE


# Folding


def find(txn: ReadTxn, content: Mapped) -> Found:
    """Returns the first inline intervals of a content, as many as one step folds. The last one is
    left out if it may still grow."""
    runs: list[InlineRun] = []
    data: list[bytes] = []
    end, length = content.folded, 0
    found = parts(txn, content, content.folded, content.length)
    for part in islice(found, _SEARCHED_MAX):
        if isinstance(part.piece, bytes):
            length += len(part.piece)
            if data and (len(data) == _FOLDED_INTERVALS_MAX or length > _FOLDED_BYTES_MAX):
                break
            if (
                part.start == content.tail
                and part.end - part.start < intervals.INLINE_INTERVAL_BYTES_MAX
            ):
                break
            if runs and runs[-1].end == part.start:
                runs[-1] = InlineRun(runs[-1].start, part.end)
            else:
                runs.append(InlineRun(part.start, part.end))
            if not is_intact(part):
                raise BodyCorrupt(
                    f"map {content.id.hex()}: the inline interval at {part.start}: checksum"
                )
            data.append(part.piece)
        end = part.end
    return Found(Fold(content.id, content.folded, end, tuple(runs), len(data)), data)


def fold(txn: WriteTxn, content: Mapped, asked: Fold, body: Body, child_id: bytes) -> Mapped | None:
    """Replaces inline intervals by pieces. Returns None if the intervals have changed."""
    if (content.id, content.folded) != (asked.map, asked.folded) or content.length < asked.end:
        return None
    if not _are_unchanged(txn, content, asked, body):
        return None
    runs = _split_at_runs(body.pieces, asked.runs)
    for run, pieces in zip(asked.runs, runs, strict=True):
        content = intervals.write_uncounted(txn, content, run.start, pieces, child_id)
    # Last: finding inline intervals after a write takes twice as long.
    create_extents(txn, body.pieces)
    _add_missing_references(txn, runs)
    return replace(
        content,
        folded=asked.end,
        inline_bytes=max(0, content.inline_bytes - body.length),
        inline_intervals=max(0, content.inline_intervals - asked.inline_intervals),
    )


def _are_unchanged(txn: WriteTxn, content: Mapped, asked: Fold, body: Body) -> bool:
    crc = length = 0
    for run in asked.runs:
        for part in parts(txn, content, run.start, run.end):
            if part.start == part.end:
                continue
            if not isinstance(part.piece, bytes):
                return False
            crc = crc64nvme(part.piece, crc)
            length += len(part.piece)
    return (crc, length) == (body.crc, body.length)


def _split_at_runs(pieces: tuple[Piece, ...], runs: tuple[InlineRun, ...]) -> list[list[Piece]]:
    """Splits the pieces, which contain the bytes of all runs in order, at the ends of the runs."""
    cuts: list[list[Piece]] = []
    rest = list(reversed(pieces))
    for run in runs:
        cuts.append([])
        missing = run.end - run.start
        while missing:
            piece = rest.pop()
            count = min(missing, piece.length)
            cuts[-1].append(cut_piece(piece, 0, count))
            if count < piece.length:
                rest.append(cut_piece(piece, count, piece.length - count))
            missing -= count
    return cuts


def _add_missing_references(txn: WriteTxn, runs: list[list[Piece]]) -> None:
    """Adds the missing references: `hold` counted one per extent, and an extent may have several
    pieces."""
    first: set[tuple[int, int]] = set()
    more: list[Piece] = []
    for piece in (piece for run in runs for piece in run):
        if piece.extent in first:
            more.append(piece)
        first.add(piece.extent)
    add_references(txn, more)
