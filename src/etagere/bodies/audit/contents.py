"""Verifies the holders of contents, block lists and chunks, and the counts of their sharers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec
from awscrt.checksums import crc64nvme

from etagere.bodies.audit import findings as kinds
from etagere.bodies.audit.findings import LedgerRemedy
from etagere.bodies.audit.remedies import (
    ChunkKey,
    ContentId,
    RowKey,
    mark_content_to_reap,
    release_unused_chunk,
    remove_row,
)
from etagere.bodies.audit.snapshot import BY_CONTENT, Audit
from etagere.bodies.contents import (
    BLOCK_LISTS,
    CHUNK_SHARERS,
    CHUNKS,
    CONTENT_SHARERS,
    CONTENTS_TO_REAP,
    EXTENTS,
    HOLDERS,
    INLINE,
    Holder,
)
from etagere.bodies.maps import GENERATIONS
from etagere.engine.records import ENCODE, Collection
from etagere.model.bodies import Chunked, Content, Empty, Inline, Mapped, Piece, Pieces, Sharers

_INLINE, _PIECES, _CHUNKED, _MAPPED = range(1, 5)
_KINDS: dict[type, int] = {
    Inline: _INLINE,
    Pieces: _PIECES,
    Chunked: _CHUNKED,
    Mapped: _MAPPED,
}
_decode_content = msgspec.msgpack.Decoder(Content).decode

_HOLD = """
INSERT INTO audit_held VALUES (?, ?, ?, 1, ?, ?)
ON CONFLICT DO UPDATE SET count = count + 1 RETURNING count, content
"""
_HOLD_GENERATION = """
INSERT INTO audit_generations VALUES (?, 1, ?, ?)
ON CONFLICT DO UPDATE SET count = count + 1, length = coalesce(length, excluded.length)
RETURNING length, user
"""
_REFER = """
INSERT INTO audit_references VALUES (?, 1, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + 1, reach = max(reach, excluded.reach),
    crc = iif(excluded.crc_length > crc_length, excluded.crc, crc),
    crc_length = max(crc_length, excluded.crc_length)
"""
_USE_CHUNK = """
INSERT INTO audit_chunks VALUES (?, 1, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + 1,
    low = min(low, excluded.low), high = max(high, excluded.high)
"""


def check_holders(audit: Audit) -> None:
    """Reads all records that hold contents or pieces."""
    by_collection: dict[Collection[Any, Any], list[tuple[int, Holder]]] = {}
    for number, holder in enumerate(HOLDERS):
        by_collection.setdefault(holder.collection, []).append((number, holder))
    for collection, holders in by_collection.items():
        for packed, _, record, _ in audit.rows(collection):
            is_object = False
            for number, holder in holders:
                for content in holder.contents(record):
                    is_object = True
                    if not isinstance(content, Empty):
                        _count_holder(audit, content, number, packed)
                count_references(audit, holder.pieces(record), number, packed)
            audit.report.objects += is_object


def _count_holder(
    audit: Audit, content: Inline | Pieces | Chunked | Mapped, number: int, packed: bytes
) -> None:
    encoded = ENCODE(content)
    kind = _KINDS[type(content)]
    values = (content.id, kind, encoded, number, packed)
    ((count, known),) = audit.execute(_HOLD, values)
    if isinstance(content, Mapped):
        holder = partial(audit.name, HOLDERS[number].collection, packed)
        length = content.length
        count_generation(audit, content.id, content.generation, length, content.id, holder)
    elif count == 1:
        if isinstance(content, Pieces):
            count_references(audit, content.pieces, BY_CONTENT, content.id)
            _compare_lengths(audit, content, sum(piece.length for piece in content.pieces))
    elif known != encoded:
        where = audit.name(HOLDERS[number].collection, packed)
        other = audit.user(BY_CONTENT, content.id)
        what = f"describes content {content.id.hex()} otherwise than {other}, which shares it"
        audit.find(kinds.CONTENTS_DIFFER, where, what)


def count_generation(
    audit: Audit,
    map_id: bytes,
    generation: int,
    length: int | None,
    user: bytes,
    where: Callable[[], str],
) -> None:
    """Counts a holder of a generation of a map. The length is None if the holder is another map."""
    key = audit.packed(GENERATIONS, (map_id, generation), where)
    if key is None:
        return
    ((known, other),) = audit.execute(_HOLD_GENERATION, (key, length, user))
    if length is not None and known != length:
        what = f"describes content {map_id.hex()} otherwise than {audit.user(BY_CONTENT, other)}"
        audit.find(kinds.CONTENTS_DIFFER, where(), f"{what}, which shares it")


def count_references(audit: Audit, pieces: Iterable[Piece], holder: int, user: bytes) -> None:
    """Counts references to the extents of pieces, by the places where they were first written."""
    for piece in pieces:
        place = _place(audit, piece, holder, user)
        if place is None:
            continue
        crc, crc_length = None, 0
        if piece.crc is not None and not piece.skip:
            crc, crc_length = piece.crc.to_bytes(8, "big"), piece.length
        reach = piece.skip + piece.length
        audit.execute(_REFER, (place, reach, crc, crc_length, holder, user))


def _place(audit: Audit, piece: Piece, holder: int, user: bytes) -> bytes | None:
    """Returns the place of a piece's extent; None, with a finding, if it is impossible."""
    sane = 0 <= piece.skip < 2**62 and 0 < piece.length < 2**62 and 0 <= (piece.crc or 0) < 2**64
    if sane:
        return audit.packed(EXTENTS, piece.extent, partial(audit.user, holder, user))
    audit.mark_incomplete()
    where = audit.user(holder, user)
    audit.find(kinds.RECORD_UNREADABLE, where, f"refers to impossible bytes: {piece}")
    return None


def _compare_lengths(audit: Audit, content: Pieces | Chunked, found: int) -> None:
    if found != content.length:
        where = audit.user(BY_CONTENT, content.id)
        what = f"has {content.length} bytes, but content {content.id.hex()} describes {found}"
        audit.find(kinds.LENGTH_WRONG, where, what)


def check_inline(audit: Audit) -> None:
    join = f"LEFT JOIN audit_held h ON h.id = t.key AND h.kind = {_INLINE}"
    for packed, (content_id,), record, (encoded,) in audit.rows(INLINE, ", h.content", join):
        if encoded is None:
            what = f"nothing holds these {len(record.data)} bytes"
            remedy = LedgerRemedy(remove_row, RowKey(INLINE.name, packed))
            audit.suspect(kinds.INLINE_UNUSED, audit.name(INLINE, packed), what, remedy)
            continue
        content = _decode_content(encoded)
        assert isinstance(content, Inline)
        where = audit.user(BY_CONTENT, content_id)
        if len(record.data) != content.length:
            what = f"has {content.length} bytes, but the ledger has {len(record.data)} of them"
            audit.find(kinds.INLINE_DAMAGED, where, what)
        elif crc64nvme(record.data) != content.crc:
            what = f"its {content.length} bytes in the ledger do not match their checksum"
            audit.find(kinds.INLINE_DAMAGED, where, what)
    for (content_id,) in _held_without(audit, _INLINE, INLINE):
        where = audit.user(BY_CONTENT, content_id)
        what = f"its bytes (content {content_id.hex()}) are not in the ledger"
        audit.find(kinds.INLINE_MISSING, where, what)


def _held_without(audit: Audit, kind: int, collection: Collection[Any, Any]) -> Any:
    """Returns the contents of a kind that have no record in a collection."""
    return audit.execute(
        f"SELECT id FROM audit_held h WHERE kind = ? AND NOT EXISTS "  # noqa: S608
        f"(SELECT 1 FROM {collection.name} t WHERE t.key = h.id)",
        (kind,),
    )


def check_lists(audit: Audit) -> None:
    join = (
        f"LEFT JOIN audit_held h ON h.id = t.key AND h.kind = {_CHUNKED} "
        "LEFT JOIN dying_contents d ON d.key = t.key"
    )
    rows = audit.rows(BLOCK_LISTS, ", h.content, d.key", join)
    for packed, (content_id,), record, (encoded, is_to_reap) in rows:
        for use in record.chunks:
            key = audit.packed(CHUNKS, use.key, partial(audit.name, BLOCK_LISTS, packed))
            if key is not None:
                audit.execute(_USE_CHUNK, (key, use.length, use.length, content_id))
        if encoded is not None:
            content = _decode_content(encoded)
            assert isinstance(content, Chunked)
            _compare_lengths(audit, content, sum(use.length for use in record.chunks))
        elif is_to_reap is None:
            what = f"nothing holds this list of {len(record.chunks)} chunks"
            remedy = LedgerRemedy(mark_content_to_reap, ContentId(content_id))
            audit.suspect(kinds.LIST_UNUSED, audit.name(BLOCK_LISTS, packed), what, remedy)
    for (content_id,) in _held_without(audit, _CHUNKED, BLOCK_LISTS):
        audit.mark_incomplete()
        where = audit.user(BY_CONTENT, content_id)
        audit.find(kinds.LIST_MISSING, where, f"its block list ({content_id.hex()}) is missing")


def check_contents_to_reap(audit: Audit) -> None:
    join = "LEFT JOIN audit_held h ON h.id = t.key LEFT JOIN block_lists b ON b.key = t.key"
    rows = audit.rows(CONTENTS_TO_REAP, ", h.id, b.key", join)
    for packed, (content_id,), _, (held, parts) in rows:
        if held is not None:
            where = audit.user(BY_CONTENT, content_id)
            what = f"holds content {content_id.hex()}, which is marked as held by nobody"
            audit.find(kinds.CONTENT_TO_REAP_HELD, where, what)
        elif parts is None:
            remedy = LedgerRemedy(remove_row, RowKey(CONTENTS_TO_REAP.name, packed))
            what = "is marked as held by nobody, but nothing is left of it"
            audit.suspect(
                kinds.CONTENT_TO_REAP_EMPTY, audit.name(CONTENTS_TO_REAP, packed), what, remedy
            )


def check_chunks(audit: Audit) -> None:
    join = "LEFT JOIN audit_chunks u ON u.key = t.key"
    rows = audit.rows(CHUNKS, ", u.low, u.high, u.user", join)
    for packed, key, record, (low, high, user) in rows:
        pieces = [piece for block in record.blocks for piece in block.pieces]
        count_references(audit, pieces, BY_CONTENT, key[0] if user is None else user)
        if user is None:
            remedy = LedgerRemedy(release_unused_chunk, ChunkKey(*key))
            what = f"no block list has this chunk of {len(record.blocks)} blocks"
            audit.suspect(kinds.CHUNK_UNUSED, audit.name(CHUNKS, packed), what, remedy)
            continue
        length = sum(piece.length for piece in pieces)
        if not low == high == length:
            expected = f"{low}" if low == high else f"{low} to {high}"
            what = f"{audit.name(CHUNKS, packed)} has {length} bytes where {expected} are listed"
            audit.find(kinds.LENGTH_WRONG, audit.user(BY_CONTENT, user), what)
    missing = audit.execute(
        "SELECT key, user FROM audit_chunks u "
        "WHERE NOT EXISTS (SELECT 1 FROM chunks t WHERE t.key = u.key)"
    )
    for packed, user in missing:
        audit.mark_incomplete()
        what = f"{audit.name(CHUNKS, packed)}, a part of its block list, is missing"
        audit.find(kinds.CHUNK_MISSING, audit.user(BY_CONTENT, user), what)


def check_sharers(audit: Audit) -> None:
    # Maps are held by their generations, which are counted by themselves.
    held = f"(SELECT id AS key, count, id AS user FROM audit_held WHERE kind <> {_MAPPED})"  # noqa: S608
    _compare_sharers(audit, CONTENT_SHARERS, held)
    _compare_sharers(audit, CHUNK_SHARERS, "audit_chunks")


def _compare_sharers(audit: Audit, sharers: Collection[Any, Sharers], held: str) -> None:
    join = f"LEFT JOIN {held} h ON h.key = t.key"
    for packed, _, record, (count, user) in audit.rows(sharers, ", h.count, h.user", join):
        if count is None:
            where = audit.name(sharers, packed)
            what = f"says that {record.extra} more hold what nothing holds at all"
            remedy = LedgerRemedy(remove_row, RowKey(sharers.name, packed))
            audit.suspect(kinds.SHARERS_UNUSED, where, what, remedy)
            continue
        if record.extra >= 1 and record.extra + 1 == count:
            continue
        where, who = audit.name(sharers, packed), audit.user(BY_CONTENT, user)
        what = f"{record.extra} sharers are recorded, {count} holders found, one of them {who}"
        if record.extra + 1 < count:
            audit.find(kinds.SHARERS_TOO_FEW, where, what)
        else:
            audit.suspect(kinds.SHARERS_TOO_MANY, where, what)
    unrecorded = audit.execute(
        f"SELECT h.key, h.count, h.user FROM {held} h WHERE h.count > 1 AND NOT EXISTS "  # noqa: S608
        f"(SELECT 1 FROM {sharers.name} t WHERE t.key = h.key)"
    )
    for packed, count, user in unrecorded:
        who = audit.user(BY_CONTENT, user)
        what = f"no sharers are recorded, {count} holders found, one of them {who}"
        audit.find(kinds.SHARERS_TOO_FEW, audit.name(sharers, packed), what)
