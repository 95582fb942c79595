"""Damages to a store, each with the findings that a check must report."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from etagere.bodies.audit import findings as kinds
from etagere.bodies.audit.findings import FindingKind
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
    INLINE,
    MOVES,
    SEGMENTS,
    UNCOUNTED_DEAD,
)
from etagere.bodies.segment_files import DIRECTORY_NAME
from etagere.model.bodies import (
    BlockList,
    Chunk,
    ContentToReap,
    Counter,
    DeadExtent,
    DeadTotal,
    Extent,
    Inline,
    InlineBytes,
    Move,
    Segment,
    SegmentState,
    Sharers,
)
from etagere.model.ids import new_id
from tests.bodies.objects import LATER, OBJECTS, STAGED
from tests.bodies.stores import DamagedStore

replace = msgspec.structs.replace
Damage = Callable[[DamagedStore], None]

DAMAGES: list[tuple[Damage, tuple[FindingKind, ...]]] = []


def finds(*expected_kinds: FindingKind) -> Callable[[Damage], Damage]:
    def register(damage: Damage) -> Damage:
        DAMAGES.append((damage, expected_kinds))
        return damage

    return register


@finds(kinds.INLINE_MISSING)
def inline_deleted(store: DamagedStore) -> None:
    store.delete(INLINE, (store.content("small").id,))


@finds(kinds.INLINE_DAMAGED)
def inline_shortened(store: DamagedStore) -> None:
    store.put(INLINE, (store.content("small").id,), InlineBytes(b"short"))


@finds(kinds.INLINE_DAMAGED)
def inline_changed(store: DamagedStore) -> None:
    store.put(INLINE, (store.content("small").id,), InlineBytes(bytes(700)))


@finds(kinds.INLINE_UNUSED)
def inline_added(store: DamagedStore) -> None:
    store.put(INLINE, (new_id(),), InlineBytes(b"nobody's"))


@finds(kinds.CONTENTS_DIFFER)
def copy_changed(store: DamagedStore) -> None:
    store.put_content("small-copy", replace(store.content("small-copy"), length=3))


@finds(kinds.LENGTH_WRONG)
def pieces_too_short(store: DamagedStore) -> None:
    store.put_content("single", replace(store.content("single"), length=5_001))


@finds(kinds.LENGTH_WRONG)
def list_too_short(store: DamagedStore) -> None:
    store.put_content("list", replace(store.content("list"), length=5))


@finds(kinds.LENGTH_WRONG)
def chunk_shortened(store: DamagedStore) -> None:
    key = (store.content("many").id, 0)
    first, *rest = store.get(CHUNKS, key).blocks
    shorter = replace(first, pieces=(replace(first.pieces[0], length=7, crc=None),))
    store.put(CHUNKS, key, Chunk((shorter, *rest)))


@finds(kinds.LENGTH_WRONG, kinds.LENGTH_WRONG)
def chunk_use_changed(store: DamagedStore) -> None:
    content = store.content("many")
    (use,) = store.get(BLOCK_LISTS, (content.id,)).chunks
    store.put(BLOCK_LISTS, (content.id,), BlockList((replace(use, length=use.length + 1),)))


@finds(kinds.LIST_MISSING)
def list_deleted(store: DamagedStore) -> None:
    store.delete(BLOCK_LISTS, (store.content("list").id,))


@finds(kinds.CHUNK_MISSING)
def chunk_deleted(store: DamagedStore) -> None:
    store.delete(CHUNKS, (store.content("many").id, 0))


@finds(kinds.LIST_UNUSED)
def list_added(store: DamagedStore) -> None:
    store.put(BLOCK_LISTS, (new_id(),), BlockList(()))


@finds(kinds.LIST_UNUSED)
def object_of_list_deleted(store: DamagedStore) -> None:
    store.delete(OBJECTS, ("moved-many",))


@finds(kinds.CHUNK_UNUSED)
def list_of_chunk_deleted(store: DamagedStore) -> None:
    content = store.content("moved-many")
    store.delete(OBJECTS, ("moved-many",))
    store.delete(BLOCK_LISTS, (content.id,))


@finds(kinds.CHUNK_UNUSED)
def chunk_added(store: DamagedStore) -> None:
    store.put(CHUNKS, (new_id(), 0), Chunk(()))


@finds(kinds.CONTENT_TO_REAP_HELD)
def held_content_dying(store: DamagedStore) -> None:
    store.put(CONTENTS_TO_REAP, (store.content("many").id,), ContentToReap())


@finds(kinds.CONTENT_TO_REAP_EMPTY)
def dying_added(store: DamagedStore) -> None:
    store.put(CONTENTS_TO_REAP, (new_id(),), ContentToReap())


@finds(kinds.SHARERS_TOO_FEW)
def content_sharers_deleted(store: DamagedStore) -> None:
    store.delete(CONTENT_SHARERS, (store.content("copied").id,))


@finds(kinds.SHARERS_TOO_FEW)
def third_holder_added(store: DamagedStore) -> None:
    store.put_content("third", store.content("copied"))


@finds(kinds.SHARERS_TOO_MANY)
def content_sharers_raised(store: DamagedStore) -> None:
    store.put(CONTENT_SHARERS, (store.content("small").id,), Sharers(2))


@finds(kinds.SHARERS_TOO_MANY)
def content_sharers_of_zero(store: DamagedStore) -> None:
    store.put(CONTENT_SHARERS, (store.content("single").id,), Sharers(0))


@finds(kinds.SHARERS_UNUSED)
def content_sharers_added(store: DamagedStore) -> None:
    store.put(CONTENT_SHARERS, (new_id(),), Sharers(1))


@finds(kinds.SHARERS_TOO_FEW)
def chunk_sharers_deleted(store: DamagedStore) -> None:
    store.delete(CHUNK_SHARERS, store.rows(CHUNK_SHARERS)[0][0])


@finds(kinds.SHARERS_TOO_MANY)
def chunk_sharers_raised(store: DamagedStore) -> None:
    store.put(CHUNK_SHARERS, store.rows(CHUNK_SHARERS)[0][0], Sharers(7))


@finds(kinds.SHARERS_UNUSED)
def chunk_sharers_added(store: DamagedStore) -> None:
    store.put(CHUNK_SHARERS, (new_id(), 4), Sharers(1))


@finds(kinds.EXTENT_MISSING)
def extent_deleted(store: DamagedStore) -> None:
    store.delete(EXTENTS, store.content("single").pieces[0].extent)


@finds(kinds.EXTENT_MISSING)
def moved_extent_deleted(store: DamagedStore) -> None:
    store.delete(EXTENTS, store.move()[1])


@finds(kinds.EXTENT_MISSING)
def staged_extent_deleted(store: DamagedStore) -> None:
    store.delete(EXTENTS, store.get(STAGED, ("waiting",)).blocks[0].pieces[0].extent)


@finds(kinds.EXTENT_EXCEEDED)
def piece_lengthened(store: DamagedStore) -> None:
    content = store.content("single")
    longer = replace(content.pieces[0], length=6_000)
    store.put_content("single", replace(content, length=6_000, pieces=(longer,)))


@finds(kinds.EXTENT_EXCEEDED)
def piece_shifted(store: DamagedStore) -> None:
    content = store.content("single")
    store.put_content("single", replace(content, pieces=(replace(content.pieces[0], skip=1),)))


@finds(kinds.EXTENT_UNUSED)
def object_deleted(store: DamagedStore) -> None:
    store.delete(OBJECTS, ("single",))


@finds(kinds.EXTENT_UNUSED)
def moved_object_deleted(store: DamagedStore) -> None:
    store.delete(OBJECTS, ("moved",))


@finds(kinds.REFERENCES_TOO_FEW)
def references_lowered(store: DamagedStore) -> None:
    key = store.content("single").pieces[0].extent
    store.put(EXTENTS, key, replace(store.get(EXTENTS, key), references=0))


@finds(kinds.REFERENCES_TOO_MANY)
def references_raised(store: DamagedStore) -> None:
    key = store.move()[1]
    store.put(EXTENTS, key, replace(store.get(EXTENTS, key), references=2))


@finds(kinds.CHECKSUMS_DIFFER)
def piece_checksum_changed(store: DamagedStore) -> None:
    content = store.content("single")
    store.put_content("single", replace(content, pieces=(replace(content.pieces[0], crc=1),)))


@finds(kinds.CHECKSUMS_DIFFER, kinds.EXTENT_DAMAGED)
def extent_checksum_changed(store: DamagedStore) -> None:
    key = store.content("single").pieces[0].extent
    store.put(EXTENTS, key, replace(store.get(EXTENTS, key), crc=2**64 - 1))


@finds(kinds.MOVE_MISSING)
def move_deleted(store: DamagedStore) -> None:
    store.delete(MOVES, store.move()[0])


@finds(kinds.MOVE_WRONG)
def move_astray(store: DamagedStore) -> None:
    store.put(MOVES, store.move()[0], Move(99, 0))


@finds(kinds.MOVE_WRONG)
def move_not_confirmed(store: DamagedStore) -> None:
    _, place = store.move()
    store.put(EXTENTS, place, replace(store.get(EXTENTS, place), origin=None))


@finds(kinds.MOVE_WRONG)
def two_moves_to_one_place(store: DamagedStore) -> None:
    store.put(MOVES, (1_000, 0), Move(*store.move()[1]))


@finds(kinds.MOVE_UNUSED)
def move_added(store: DamagedStore) -> None:
    store.put(MOVES, (1_000, 0), Move(1_001, 0))


@finds(kinds.SEGMENT_MISSING)
def segment_file_removed(store: DamagedStore) -> None:
    store.path(store.segment_of("single")).unlink()


@finds(kinds.SEGMENT_MISSING)
def open_segment_file_removed(store: DamagedStore) -> None:
    store.path(store.segment_of("late")).unlink()


@finds(kinds.SEGMENT_MISSING)
def segment_file_replaced(store: DamagedStore) -> None:
    path = store.path(store.segment_of("single"))
    path.unlink()
    path.mkdir()


@finds(kinds.SEGMENT_SHORT)
def segment_file_truncated(store: DamagedStore) -> None:
    os.truncate(store.path(store.segment_of("late")), 2_999)


@finds(kinds.SEGMENT_RETIRED)
def segment_in_use_retired(store: DamagedStore) -> None:
    key = (store.segment_of("single"),)
    store.put(SEGMENTS, key, replace(store.get(SEGMENTS, key), state=SegmentState.RETIRED))


@finds(kinds.SEGMENT_UNKNOWN)
def segment_record_deleted(store: DamagedStore) -> None:
    store.delete(SEGMENTS, (store.segment_of("single"),))


@finds(kinds.SEGMENT_LENGTH_WRONG)
def segment_record_shortened(store: DamagedStore) -> None:
    key = (store.segment_of("single"),)
    store.put(SEGMENTS, key, replace(store.get(SEGMENTS, key), length=100))


@finds(kinds.DEAD_TOTAL_WRONG)
def segment_record_lengthened(store: DamagedStore) -> None:
    key = (store.segment_of("copied"),)
    segment = store.get(SEGMENTS, key)
    store.put(SEGMENTS, key, replace(segment, length=segment.length + 9))


@finds(kinds.DEAD_TOTAL_WRONG)
def dead_space_deleted(store: DamagedStore) -> None:
    sealed = {n for (n,), s in store.rows(SEGMENTS) if s.state is SegmentState.SEALED}
    rows = store.rows(UNCOUNTED_DEAD)
    store.delete(UNCOUNTED_DEAD, next(key for key, _ in rows if key[0] in sealed))


@finds(kinds.EXTENTS_OVERLAP)
def dead_space_in_extent(store: DamagedStore) -> None:
    segment, offset = store.content("single").pieces[0].extent
    store.put(UNCOUNTED_DEAD, (segment, offset + 1), DeadExtent(1))


@finds(kinds.EXTENTS_OVERLAP, kinds.EXTENT_UNUSED)
def extent_in_extent(store: DamagedStore) -> None:
    segment, offset = store.content("single").pieces[0].extent
    store.put(EXTENTS, (segment, offset + 1), Extent(1, None))


@finds(kinds.SEGMENT_EMPTY)
def segment_record_added(store: DamagedStore) -> None:
    store.put(SEGMENTS, (5,), store.get(SEGMENTS, (5,)))
    store.put(COUNTERS, (0,), Counter(40))
    store.put(SEGMENTS, (33,), Segment(new_id(), SegmentState.SEALED, 77))
    store.put(COUNTED_DEAD, (33, 0), DeadExtent(77))
    store.put(DEAD_TOTALS, (33,), DeadTotal(77))


@finds()
def segments_left_by_crashes(store: DamagedStore) -> None:
    """Between the steps of creating and of removing a segment."""
    store.put(COUNTERS, (0,), Counter(40))
    store.put(SEGMENTS, (33,), Segment(new_id()))
    store.put(SEGMENTS, (34,), Segment(new_id(), SegmentState.SEALED, 0))
    store.put(SEGMENTS, (35,), Segment(new_id(), SegmentState.RETIRED, 50))
    store.put(UNCOUNTED_DEAD, (35, 20), DeadExtent(20))
    store.put(COUNTED_DEAD, (35, 40), DeadExtent(10))
    store.put(DEAD_TOTALS, (35,), DeadTotal(30))
    number, _ = store.segment(SegmentState.RETIRED)
    store.path(number).unlink()


@finds(kinds.DEAD_UNUSED)
def dead_space_added(store: DamagedStore) -> None:
    store.put(UNCOUNTED_DEAD, (777, 0), DeadExtent(3))
    store.put(COUNTED_DEAD, (777, 3), DeadExtent(3))
    store.put(DEAD_TOTALS, (777,), DeadTotal(6))


def _sealed_total(store: DamagedStore) -> tuple[int, int]:
    """Returns a sealed segment and its count of dead bytes."""
    sealed = {n for (n,), s in store.rows(SEGMENTS) if s.state is SegmentState.SEALED}
    return next((n, t.length) for (n,), t in store.rows(DEAD_TOTALS) if n in sealed)


@finds(kinds.DEAD_TOTAL_WRONG)
def dead_total_changed(store: DamagedStore) -> None:
    number, total = _sealed_total(store)
    store.put(DEAD_TOTALS, (number,), DeadTotal(total + 1))


@finds(kinds.DEAD_TOTAL_WRONG)
def dead_total_deleted(store: DamagedStore) -> None:
    store.delete(DEAD_TOTALS, (_sealed_total(store)[0],))


@finds(kinds.DEAD_TOTAL_WRONG)
def dead_total_of_nothing(store: DamagedStore) -> None:
    store.put(DEAD_TOTALS, (777,), DeadTotal(6))


@finds(kinds.FILE_UNUSED)
def file_added(store: DamagedStore) -> None:
    store.path(4_000).write_bytes(b"what is this")


@finds(kinds.FILE_TOO_LONG)
def file_lengthened(store: DamagedStore) -> None:
    *_, sealed = [n for (n,), s in store.rows(SEGMENTS) if s.state is SegmentState.SEALED]
    with store.path(sealed).open("ab") as file:
        file.write(b"more")


@finds(kinds.FILE_STRANGE)
def strange_file_added(store: DamagedStore) -> None:
    (store.directory / DIRECTORY_NAME / "1.seg").write_bytes(b"a name that we do not give")


@finds(kinds.EXTENT_DAMAGED)
def byte_flipped(store: DamagedStore) -> None:
    flip(store, *store.content("single").pieces[0].extent)


@finds(kinds.EXTENT_DAMAGED)
def byte_of_moved_extent_flipped(store: DamagedStore) -> None:
    flip(store, *store.move()[1])


def flip(store: DamagedStore, segment: int, offset: int) -> None:
    with store.path(segment).open("r+b") as file:
        file.seek(offset + 10)
        byte = file.read(1)
        file.seek(offset + 10)
        file.write(bytes([byte[0] ^ 0x10]))


@finds(kinds.REFERENCES_TOO_FEW)
def piece_redirected(store: DamagedStore) -> None:
    """The extent that the object referred to looks unused, but must not be released."""
    content = store.content("single")
    segment, offset = store.content("copied").pieces[0].extent
    other = replace(content.pieces[0], segment=segment, offset=offset)
    store.put_content("single", replace(content, pieces=(other,)))


@finds(*[kinds.MOVE_WRONG] * 3, kinds.REFERENCES_TOO_FEW)
def move_redirected(store: DamagedStore) -> None:
    (first, _), (_, second), *_ = store.rows(MOVES)
    store.put(MOVES, first, second)


@finds(kinds.INLINE_MISSING)
def content_redirected(store: DamagedStore) -> None:
    store.delete(CONTENT_SHARERS, (store.content("small").id,))
    for name in ("small", "small-copy"):
        store.delete(OBJECTS, (name,))
    store.put_content("small", Inline(new_id(), 700, 1))


@finds(kinds.TIMELINE_WRONG)
def timeline_deleted(store: DamagedStore) -> None:
    store.execute("DELETE FROM timeline")


@finds(kinds.TIMELINE_WRONG)
def timeline_doubled(store: DamagedStore) -> None:
    store.execute("INSERT INTO timeline SELECT value FROM timeline")


@finds(kinds.TIMELINE_WRONG)
def timeline_spoilt(store: DamagedStore) -> None:
    store.execute("UPDATE timeline SET value = x'c1'")


@finds(kinds.TIMELINE_WRONG)
def timeline_dropped(store: DamagedStore) -> None:
    store.execute("DROP TABLE timeline")


@finds(kinds.COUNTER_WRONG)
def counter_lowered(store: DamagedStore) -> None:
    store.put(COUNTERS, (0,), Counter(1))


@finds(kinds.COUNTER_WRONG)
def counter_deleted(store: DamagedStore) -> None:
    store.delete(COUNTERS, (0,))


@finds(kinds.TABLE_UNKNOWN)
def table_added(store: DamagedStore) -> None:
    store.execute("CREATE TABLE newer (key BLOB, value BLOB)")
    store.execute("INSERT INTO newer VALUES (x'00', x'00')")


@finds()
def empty_table_added(store: DamagedStore) -> None:
    store.execute("CREATE TABLE newer (key BLOB, value BLOB)")


@finds()
def table_not_made_yet(store: DamagedStore) -> None:
    """As after an upgrade that adds a collection, before the server has started."""
    assert not store.rows(LATER)
    store.execute(f"DROP TABLE {LATER.name}")


@finds(kinds.RECORD_UNREADABLE)
def key_spoilt(store: DamagedStore) -> None:
    store.execute("INSERT INTO extents VALUES (x'00', x'9301c0c0')")


@finds(kinds.RECORD_UNREADABLE)
def value_of_other_type(store: DamagedStore) -> None:
    store.execute("INSERT INTO test_objects VALUES (x'7a00', 'text')")


@finds(kinds.RECORD_UNREADABLE)
def impossible_piece(store: DamagedStore) -> None:
    content = store.content("single")
    store.put_content("single", replace(content, pieces=(replace(content.pieces[0], segment=-1),)))


@finds(kinds.RECORD_UNREADABLE)
def impossible_piece_length(store: DamagedStore) -> None:
    key = (store.content("many").id, 0)
    (first, *rest) = store.get(CHUNKS, key).blocks
    odd = replace(first, pieces=(replace(first.pieces[0], skip=2**63), *first.pieces[1:]))
    store.put(CHUNKS, key, Chunk((odd, *rest)))


@finds(kinds.RECORD_UNREADABLE)
def impossible_chunk(store: DamagedStore) -> None:
    content = store.content("many")
    (use,) = store.get(BLOCK_LISTS, (content.id,)).chunks
    store.put(BLOCK_LISTS, (content.id,), BlockList((replace(use, content=b"short"),)))


@finds(kinds.RECORD_UNREADABLE)
def impossible_move(store: DamagedStore) -> None:
    store.put(MOVES, store.move()[0], Move(-1, 0))


@finds(kinds.RECORD_UNREADABLE)
def key_of_other_type(store: DamagedStore) -> None:
    store.execute("INSERT INTO test_objects VALUES (17, x'00')")
