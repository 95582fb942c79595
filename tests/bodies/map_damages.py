"""Damages to the interval maps of a store, each with the findings that a check must report."""

from __future__ import annotations

import msgspec

from etagere.bodies.audit import findings as kinds
from etagere.bodies.contents import EXTENTS
from etagere.bodies.maps import (
    FORMER_INTERVALS,
    GENERATIONS,
    INTERVAL_MAPS,
    INTERVALS,
    MAPS_TO_FLATTEN,
    MAPS_TO_REAP,
)
from etagere.model.bodies import (
    FormerInterval,
    Holders,
    Interval,
    IntervalMap,
    Mapped,
    MapToFlatten,
    MapToReap,
    Piece,
)
from etagere.model.ids import new_id
from tests.bodies.damages import finds
from tests.bodies.stores import DamagedStore

replace = msgspec.structs.replace


def generation_of(store: DamagedStore, name: str) -> tuple[bytes, int]:
    content = store.content(name)
    return content.id, content.generation


@finds(kinds.MAP_MISSING)
def map_of_object_missing(store: DamagedStore) -> None:
    store.put_content("more pages", Mapped(new_id(), 512, 1))


@finds(kinds.MAP_MISSING)
def map_deleted(store: DamagedStore) -> None:
    """Its generations and intervals are all there is to restore it from."""
    store.delete(INTERVAL_MAPS, (store.content("pages").id,))


@finds(kinds.MAP_MISSING)
def map_of_fork_deleted(store: DamagedStore) -> None:
    store.delete(INTERVAL_MAPS, (store.content("pages-fork").id,))


@finds(kinds.MAP_UNUSED)
def map_added(store: DamagedStore) -> None:
    map_id = new_id()
    store.put(INTERVAL_MAPS, (map_id,), IntervalMap(1, map_id))


@finds(kinds.MAP_UNMARKED)
def stacked_mark_deleted(store: DamagedStore) -> None:
    store.delete(MAPS_TO_FLATTEN, (store.content("pages-fork").id,))


@finds(kinds.GENERATION_UNUSED)
def generation_added(store: DamagedStore) -> None:
    store.put(GENERATIONS, (store.content("pages").id, 900), Holders(1))


@finds(kinds.SHARERS_TOO_FEW)
def generation_deleted(store: DamagedStore) -> None:
    store.delete(GENERATIONS, generation_of(store, "pages-old"))


@finds(kinds.SHARERS_TOO_FEW)
def holders_lowered(store: DamagedStore) -> None:
    key = generation_of(store, "pages-old")
    count = store.get(GENERATIONS, key).count
    assert count == 3, "an object, its copy and the base of the fork"
    store.put(GENERATIONS, key, Holders(count - 1))


@finds(kinds.SHARERS_TOO_MANY)
def holders_raised(store: DamagedStore) -> None:
    store.put(GENERATIONS, generation_of(store, "pages"), Holders(2))


@finds(kinds.CONTENTS_DIFFER)
def length_of_copy_wrong(store: DamagedStore) -> None:
    content = store.content("pages-old")
    store.put_content("pages-old", replace(content, length=content.length + 512))


@finds(kinds.INTERVAL_UNUSED)
def interval_added(store: DamagedStore) -> None:
    store.put(INTERVALS, (new_id(), 0), Interval(None, 512, 1))


@finds(kinds.INTERVAL_UNUSED)
def former_interval_added(store: DamagedStore) -> None:
    store.put(FORMER_INTERVALS, (new_id(), 0, 1), FormerInterval(None, 512, 2))


@finds(kinds.INTERVAL_UNUSED)
def unseen_interval_added(store: DamagedStore) -> None:
    """The first and the third generation of a map are held; the second is not."""
    key = (store.content("pages").id, 1 << 40, 500)
    store.put(FORMER_INTERVALS, key, FormerInterval(None, 512, 501))


@finds(kinds.EXTENT_UNUSED)
def interval_deleted(store: DamagedStore) -> None:
    """Only its extent remains. Missing bytes cannot be told from a hole."""
    content = store.content("appended")
    key, row = next(row for row in store.rows(INTERVALS) if row[0][0] == content.id)
    assert isinstance(row.piece, Piece)
    assert store.get(EXTENTS, row.piece.extent).references == 1
    store.delete(INTERVALS, key)


@finds(kinds.INTERVALS_OVERLAP, kinds.LENGTH_WRONG)
def interval_lengthened(store: DamagedStore) -> None:
    content = store.content("appended")
    key, row = next(row for row in store.rows(INTERVALS) if row[0][0] == content.id)
    store.put(INTERVALS, key, replace(row, length=row.length + 1))


@finds(kinds.LENGTH_WRONG)
def inline_interval_cut(store: DamagedStore) -> None:
    key, row = next(row for row in store.rows(INTERVALS) if isinstance(row[1].piece, bytes))
    assert isinstance(row.piece, bytes)
    store.put(INTERVALS, key, replace(row, piece=row.piece[:-1]))


@finds(kinds.LENGTH_WRONG)
def former_inline_interval_lengthened(store: DamagedStore) -> None:
    rows = store.rows(FORMER_INTERVALS)
    key, row = next(row for row in rows if isinstance(row[1].piece, bytes))
    assert isinstance(row.piece, bytes)
    store.put(FORMER_INTERVALS, key, replace(row, piece=row.piece + b"x"))


@finds(kinds.INTERVAL_UNUSED)
def inline_interval_added(store: DamagedStore) -> None:
    store.put(INTERVALS, (new_id(), 0), Interval(b"data", 4, 1))


@finds(kinds.INTERVAL_UNUSED)
def former_inline_interval_added(store: DamagedStore) -> None:
    store.put(FORMER_INTERVALS, (new_id(), 0, 1), FormerInterval(b"data", 4, 2))


@finds(kinds.EXTENT_MISSING)
def extent_of_interval_deleted(store: DamagedStore) -> None:
    found = [row.piece for _, row in store.rows(FORMER_INTERVALS)]
    pieces = [piece for piece in found if isinstance(piece, Piece)]
    store.delete(EXTENTS, pieces[0].extent)


@finds(kinds.CONTENT_TO_REAP_EMPTY)
def fading_mark_added(store: DamagedStore) -> None:
    store.put(MAPS_TO_REAP, (new_id(),), MapToReap())


@finds(kinds.CONTENT_TO_REAP_EMPTY)
def stacked_mark_added(store: DamagedStore) -> None:
    store.put(MAPS_TO_FLATTEN, (new_id(),), MapToFlatten())


@finds(kinds.RECORD_UNREADABLE)
def impossible_newest(store: DamagedStore) -> None:
    map_id = store.content("appended").id
    record = store.get(INTERVAL_MAPS, (map_id,))
    store.put(INTERVAL_MAPS, (map_id,), replace(record, newest=2**63))


@finds(kinds.RECORD_UNREADABLE)
def impossible_base(store: DamagedStore) -> None:
    map_id = store.content("pages-fork").id
    record = store.get(INTERVAL_MAPS, (map_id,))
    store.put(INTERVAL_MAPS, (map_id,), replace(record, base=b"short"))


@finds(kinds.RECORD_UNREADABLE)
def impossible_born(store: DamagedStore) -> None:
    key, row = store.rows(INTERVALS)[0]
    store.put(INTERVALS, key, replace(row, born=-1))


@finds(kinds.RECORD_UNREADABLE)
def impossible_ended(store: DamagedStore) -> None:
    key, row = store.rows(FORMER_INTERVALS)[0]
    store.put(FORMER_INTERVALS, key, replace(row, ended=-1))


@finds(kinds.RECORD_UNREADABLE)
def impossible_generation(store: DamagedStore) -> None:
    store.put_content("more pages", Mapped(new_id(), 512, -1))
