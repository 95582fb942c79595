"""Verifies interval maps: the holders of generations, and intervals that no generation shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from awscrt.checksums import crc64nvme

from etagere.bodies.audit import findings as kinds
from etagere.bodies.audit.contents import count_generation, count_references
from etagere.bodies.audit.findings import LedgerRemedy
from etagere.bodies.audit.remedies import (
    ContentId,
    FormerKey,
    GenerationKey,
    IntervalKey,
    RowKey,
    mark_map_to_flatten,
    mark_map_to_reap,
    release_unused_former,
    release_unused_generation,
    release_unused_interval,
    remove_row,
)
from etagere.bodies.audit.snapshot import BY_CONTENT, Audit
from etagere.bodies.maps import (
    FORMER_INTERVALS,
    GENERATIONS,
    INTERVAL_MAPS,
    INTERVALS,
    MAPS_TO_FLATTEN,
    MAPS_TO_REAP,
    length_of,
)
from etagere.engine.records import UINT_MAX, Collection
from etagere.model.bodies import FormerInterval, Interval, Piece

_JOIN_MAPS_TO_REAP = "LEFT JOIN fading_maps f ON f.key = substr(t.key, 1, 16)"


def check_maps(audit: Audit) -> None:
    """Verifies all maps. The holders among objects have been counted; maps hold their bases too."""
    _count_bases(audit)
    _check_generations(audit)
    _check_records(audit)
    _check_current(audit)
    _check_former(audit)
    _check_marks(audit, MAPS_TO_REAP)
    _check_marks(audit, MAPS_TO_FLATTEN)


def _count_bases(audit: Audit) -> None:
    join = "LEFT JOIN stacked_maps s ON s.key = t.key"
    for packed, (map_id,), record, (is_to_flatten,) in audit.rows(INTERVAL_MAPS, ", s.key", join):
        where = partial(audit.name, INTERVAL_MAPS, packed)
        newest = record.newest
        if not _is_possible(audit, newest, where):
            newest = UINT_MAX - 1
        audit.execute("INSERT INTO audit_maps VALUES (?, ?)", (map_id, newest))
        if record.base is None:
            continue
        count_generation(audit, record.base, record.base_generation, None, map_id, where)
        if is_to_flatten is None:
            remedy = LedgerRemedy(mark_map_to_flatten, ContentId(map_id))
            what = "shows another map, which is not going to be copied into it"
            audit.suspect(kinds.MAP_UNMARKED, where(), what, remedy)


def _check_generations(audit: Audit) -> None:
    join = "LEFT JOIN audit_generations h ON h.key = t.key"
    for packed, key, record, (count, user) in audit.rows(GENERATIONS, ", h.count, h.user", join):
        where = audit.name(GENERATIONS, packed)
        if count is None:
            what = f"nothing holds this generation, but {record.count} are said to"
            remedy = LedgerRemedy(release_unused_generation, GenerationKey(*key))
            audit.suspect(kinds.GENERATION_UNUSED, where, what, remedy)
            continue
        if record.count == count:
            continue
        who = audit.user(BY_CONTENT, user)
        what = f"{record.count} holders are recorded, {count} found, one of them {who}"
        if record.count < count:
            audit.find(kinds.SHARERS_TOO_FEW, where, what)
        else:
            audit.suspect(kinds.SHARERS_TOO_MANY, where, what)
    unrecorded = audit.execute(
        "SELECT h.key, h.count, h.user FROM audit_generations h "
        "WHERE EXISTS (SELECT 1 FROM interval_maps m WHERE m.key = substr(h.key, 1, 16)) "
        "AND NOT EXISTS (SELECT 1 FROM generations t WHERE t.key = h.key)"
    )
    for packed, count, user in unrecorded:
        who = audit.user(BY_CONTENT, user)
        what = f"no holders are recorded, {count} found, one of them {who}"
        audit.find(kinds.SHARERS_TOO_FEW, audit.name(GENERATIONS, packed), what)


def _check_records(audit: Audit) -> None:
    maps = audit.execute(
        "SELECT id FROM audit_maps m "
        "WHERE NOT EXISTS (SELECT 1 FROM fading_maps f WHERE f.key = m.id)"
    )
    for (packed,) in maps:
        if _is_held(audit, packed, 0, UINT_MAX):
            continue
        remedy = LedgerRemedy(mark_map_to_reap, ContentId(packed))
        where = audit.name(INTERVAL_MAPS, packed)
        audit.suspect(kinds.MAP_UNUSED, where, "nothing holds this map", remedy)
    missing = audit.execute(
        "SELECT substr(key, 1, 16), user FROM audit_generations h "
        "WHERE NOT EXISTS (SELECT 1 FROM interval_maps t WHERE t.key = substr(h.key, 1, 16)) "
        "GROUP BY 1"
    )
    for map_id, user in missing:
        where = audit.user(BY_CONTENT, user)
        what = f"its map of intervals ({map_id.hex()}) is missing"
        audit.find(kinds.MAP_MISSING, where, what)


def _check_current(audit: Audit) -> None:
    before, reach, held = b"", 0, _HeldGenerations(audit)
    join = f"LEFT JOIN audit_maps m ON m.id = substr(t.key, 1, 16) {_JOIN_MAPS_TO_REAP}"
    rows = audit.rows(INTERVALS, ", m.newest, f.key", join)
    for packed, (map_id, offset), interval, (newest, is_to_reap) in rows:
        where = partial(audit.name, INTERVALS, packed)
        _check_interval(audit, map_id, interval, where)
        if not _is_possible(audit, interval.born, where):
            continue
        if map_id == before and offset < reach:
            audit.find(kinds.INTERVALS_OVERLAP, where(), f"the one before reaches to {reach}")
        before, reach = map_id, offset + interval.length
        if is_to_reap is not None:
            continue
        stop = UINT_MAX if newest is None else newest + 1
        if newest is None or not held.within(map_id, interval.born, stop):
            remedy = LedgerRemedy(release_unused_interval, IntervalKey(map_id, offset))
            audit.suspect(kinds.INTERVAL_UNUSED, where(), "nothing shows it", remedy)


def _check_former(audit: Audit) -> None:
    join = f"LEFT JOIN audit_maps m ON m.id = substr(t.key, 1, 16) {_JOIN_MAPS_TO_REAP}"
    held = _HeldGenerations(audit)
    rows = audit.rows(FORMER_INTERVALS, ", m.id, f.key", join)
    for packed, key, interval, (known, is_to_reap) in rows:
        map_id, _, born = key
        where = partial(audit.name, FORMER_INTERVALS, packed)
        _check_interval(audit, map_id, interval, where)
        if not _is_possible(audit, interval.ended, where):
            continue
        if is_to_reap is not None:
            continue
        if known is None or not held.within(map_id, born, interval.ended):
            remedy = LedgerRemedy(release_unused_former, FormerKey(*key))
            audit.suspect(kinds.INTERVAL_UNUSED, where(), "nothing shows it", remedy)


def _check_interval(
    audit: Audit, map_id: bytes, interval: Interval | FormerInterval, where: Callable[[], str]
) -> None:
    if interval.piece is None:
        return
    if isinstance(interval.piece, Piece):
        count_references(audit, (interval.piece,), BY_CONTENT, map_id)
    length = length_of(interval.piece)
    if length != interval.length:
        what = f"has {interval.length} bytes, but its piece has {length}"
        audit.find(kinds.LENGTH_WRONG, where(), what)
    elif isinstance(interval.piece, bytes) and not _matches(interval.piece, interval.crc):
        what = f"its {length} bytes in the ledger do not match their checksum"
        audit.find(kinds.INLINE_DAMAGED, where(), what)


def _matches(data: bytes, crc: int | None) -> bool:
    """Whether an data is as it was written; those of older versions do not tell."""
    return crc is None or crc64nvme(data) == crc


def _is_possible(audit: Audit, generation: int, where: Callable[[], str]) -> bool:
    """Returns whether a generation is possible; reports the record if it is not."""
    if 0 < generation < UINT_MAX:
        return True
    audit.mark_incomplete()
    audit.find(kinds.RECORD_UNREADABLE, where(), f"names generation {generation}, which cannot be")
    return False


class _HeldGenerations:
    """Looks up whether generations are held, and caches the last answer: adjacent rows mostly ask
    for the same generations."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._asked: tuple[bytes, int, int] | None = None
        self._answer = False

    def within(self, map_id: bytes, first: int, stop: int) -> bool:
        asked = (map_id, first, stop)
        if asked != self._asked:
            self._asked, self._answer = asked, _is_held(self._audit, *asked)
        return self._answer


def _is_held(audit: Audit, map_id: bytes, first: int, stop: int) -> bool:
    """Returns whether a generation from `first` up to, but not including, `stop` is held. Recorded
    and counted holders both count; a difference between them is reported elsewhere."""
    span = (map_id + first.to_bytes(8, "big"), map_id + stop.to_bytes(8, "big"))
    return any(
        list(
            audit.execute(
                f"SELECT 1 FROM {table} WHERE key >= ? AND key < ? LIMIT 1",  # noqa: S608
                span,
            )
        )
        for table in ("generations", "audit_generations")
    )


def _check_marks(audit: Audit, marks: Collection[tuple[bytes], Any]) -> None:
    join = "LEFT JOIN audit_maps m ON m.id = t.key"
    for packed, _, _, (known,) in audit.rows(marks, ", m.id", join):
        if known is None and not _has_rows(audit, packed):
            remedy = LedgerRemedy(remove_row, RowKey(marks.name, packed))
            what = "there is something to be done to it, but nothing is left of it"
            audit.suspect(kinds.CONTENT_TO_REAP_EMPTY, audit.name(marks, packed), what, remedy)


def _has_rows(audit: Audit, map_id: bytes) -> bool:
    return any(
        list(
            audit.execute(
                f"SELECT 1 FROM {table} WHERE key > ? AND key < ? LIMIT 1",  # noqa: S608
                (map_id, map_id + b"\xff"),
            )
        )
        for table in ("intervals", "former_intervals")
    )
