"""Inlays: bytes of interval maps that lie in the ledger, and how they come to lie in segments.

Small blocks that are appended cost one commit that way, and no write to a segment. So that no map
is made of endless many of them, a content counts its inlays. From time to time they are folded:
somebody reads those of a content, writes them into a segment, and then replaces them by pieces
of that, all at once, if they are still what was read. The bytes that a content shows do not change.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from awscrt.checksums import crc64nvme
from msgspec.structs import replace

from etagere.bodies import intervals
from etagere.bodies.contents import hold, refer_all
from etagere.bodies.maps import BodyCorrupt, cut_piece, is_intact, parts
from etagere.config import KIB
from etagere.engine.interface import ReadTxn, WriteTxn
from etagere.model.base import Part
from etagere.model.bodies import Body, Mapped, Piece

BYTES_DUE = 256 * KIB
"""Inlays are folded when they are so long together,"""
INLAYS_DUE = 256
"""or so many."""
BYTES_MAX = 1024 * KIB
"""A content has no more: whoever reads it keeps them in memory."""
INLAYS_MAX = 1024
_FOLDED_BYTES_MAX = 512 * KIB
"""What one step folds: the writer is to be free again soon,"""
_FOLDED_INLAYS_MAX = 400
"""and must not have to start a child."""
_SEARCHED_MAX = 2_000


class Run(Part, frozen=True):
    """Inlays right behind each other."""

    start: int
    end: int


class Fold(Part, frozen=True):
    """What is to be folded in one step."""

    map: bytes
    folded: int
    """As the content said when this was found."""
    end: int
    """Before this, nothing else lies in the ledger."""
    runs: tuple[Run, ...]
    inlays: int


class Found(NamedTuple):
    """What to fold, and its bytes."""

    fold: Fold
    data: list[bytes]


# When


def has_room(content: Mapped, length: int) -> bool:
    """Whether a content may have one more inlay, of this length."""
    return content.inlays < INLAYS_MAX and content.inlaid + length <= BYTES_MAX


def has_come_due(before: Mapped, after: Mapped) -> bool:
    """Whether a change is the one that calls for folding. If nobody does it, a later one calls
    again; but not every one, since of several processes one is enough."""
    return (
        after.inlays // INLAYS_DUE > before.inlays // INLAYS_DUE
        or after.inlaid // BYTES_DUE > before.inlaid // BYTES_DUE
    )


def is_due(content: Mapped) -> bool:
    return content.inlays >= INLAYS_DUE or content.inlaid >= BYTES_DUE


# How


def find(txn: ReadTxn, content: Mapped) -> Found:
    """The first inlays of a content, as many as one step folds. The last one, if it
    may still grow, is left for another time."""
    runs: list[Run] = []
    data: list[bytes] = []
    end, length = content.folded, 0
    found = parts(txn, content, content.folded, content.length)
    for part in islice(found, _SEARCHED_MAX):
        if isinstance(part.piece, bytes):
            length += len(part.piece)
            if data and (len(data) == _FOLDED_INLAYS_MAX or length > _FOLDED_BYTES_MAX):
                break
            if part.start == content.tail and part.end - part.start < intervals.INLAY_BYTES_MAX:
                break
            if runs and runs[-1].end == part.start:
                runs[-1] = Run(runs[-1].start, part.end)
            else:
                runs.append(Run(part.start, part.end))
            if not is_intact(part):
                raise BodyCorrupt(f"map {content.id.hex()}: the inlay at {part.start}: checksum")
            data.append(part.piece)
        end = part.end
    return Found(Fold(content.id, content.folded, end, tuple(runs), len(data)), data)


def fold(txn: WriteTxn, content: Mapped, asked: Fold, body: Body, child_id: bytes) -> Mapped | None:
    """Puts pieces in place of inlays. None if those are not there any more, or are others."""
    if (content.id, content.folded) != (asked.map, asked.folded) or content.length < asked.end:
        return None
    if not _are_there(txn, content, asked, body):
        return None
    runs = _along(body.pieces, asked.runs)
    for run, pieces in zip(asked.runs, runs, strict=True):
        content = intervals.lay_counted(txn, content, run.start, pieces, child_id)
    # Last, because to look for inlays after something was written takes twice as long.
    hold(txn, body.pieces)
    _refer_to_rest(txn, runs)
    return replace(
        content,
        folded=asked.end,
        inlaid=max(0, content.inlaid - body.length),
        inlays=max(0, content.inlays - asked.inlays),
    )


def _are_there(txn: WriteTxn, content: Mapped, asked: Fold, body: Body) -> bool:
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


def _along(pieces: tuple[Piece, ...], runs: tuple[Run, ...]) -> list[list[Piece]]:
    """The pieces, which have all the bytes of the runs in order, cut to each of them."""
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


def _refer_to_rest(txn: WriteTxn, runs: list[list[Piece]]) -> None:
    """Each extent was written for all its pieces and has one reference; the others are added."""
    first: set[tuple[int, int]] = set()
    more: list[Piece] = []
    for piece in (piece for run in runs for piece in run):
        if piece.extent in first:
            more.append(piece)
        first.add(piece.extent)
    refer_all(txn, more)
