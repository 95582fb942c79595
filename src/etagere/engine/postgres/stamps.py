"""Stamps: numbers of changes that are never reused, without a counter that all nodes update.

A stamp is a multiple of 1,000 ticks of time plus the slot of the writer, so that two writers never
issue the same. A writer issues strictly increasing stamps, and none above its reservation, which is
stored in the database. A slot is free when its reservation is over; whoever takes it starts above
that. So a writer that was paused, or whose reservation was lost in a failover, issues nothing that
another one may have issued.
"""

from __future__ import annotations

from typing import Final

from etagere.clock import TICKS_PER_SECOND

SLOTS_MAX: Final = 1_000
"""The number of slots. The time of a stamp is a multiple of this many ticks, 0.1 ms."""
RESERVE_TICKS: Final = 10 * TICKS_PER_SECOND

CREATE_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS writers (slot int PRIMARY KEY, owner bytea,"
    " reserved_until bigint NOT NULL)"
)
FIND_FREE: Final = (
    "SELECT slot, reserved_until FROM writers WHERE owner IS NULL OR reserved_until < $1::bigint"
    " ORDER BY owner IS NOT NULL, slot LIMIT 1 FOR UPDATE SKIP LOCKED"
)
"""A slot that was released or whose reservation ended before $1."""
INSERT_NEXT: Final = (
    "INSERT INTO writers SELECT coalesce(max(slot) + 1, 0), $1::bytea, $2::bigint FROM writers"  # noqa: S608
    f" HAVING coalesce(max(slot) + 1, 0) < {SLOTS_MAX} ON CONFLICT DO NOTHING RETURNING slot"
)
TAKE: Final = (
    "UPDATE writers SET owner = $1::bytea, reserved_until = $2::bigint WHERE slot = $3::int"
)
RESERVE: Final = (
    "UPDATE writers SET reserved_until = greatest(reserved_until, $1::bigint)"
    " WHERE slot = $2::int AND owner = $3::bytea RETURNING reserved_until"
)
"""No row: another writer has taken the slot."""
RELEASE: Final = (
    "UPDATE writers SET owner = NULL, reserved_until = $1::bigint"
    " WHERE slot = $2::int AND owner = $3::bytea"
)


class NotReserved(Exception):
    """A stamp would exceed the reservation; `until` is what has to be reserved."""

    def __init__(self, until: int) -> None:
        super().__init__(f"stamps up to {until} are not reserved")
        self.until = until


def next_stamp(time: int, last: int, slot: int) -> int:
    """Returns the first stamp of a slot that is not before a time, and greater than the last
    one, of whatever slot."""
    multiple = max(-(-time // SLOTS_MAX), last // SLOTS_MAX + 1)
    if (multiple - 1) * SLOTS_MAX + slot > last and (multiple - 1) * SLOTS_MAX + slot >= time:
        multiple -= 1
    return multiple * SLOTS_MAX + slot


class StampSource:
    """Issues the stamps of one writer."""

    __slots__ = ("last", "reserved_until", "slot")

    def __init__(self, slot: int, last: int, reserved_until: int) -> None:
        """`last`: the end of the slot's previous reservation."""
        if not 0 <= slot < SLOTS_MAX:
            raise ValueError(f"slot {slot} is not below {SLOTS_MAX}")
        self.slot = slot
        self.last = last
        self.reserved_until = reserved_until

    def issue(self, time: int, above: int = 0) -> int:
        """Returns a new stamp, at least `time` and greater than `above`. Raises `NotReserved`."""
        stamp = next_stamp(time, max(self.last, above), self.slot)
        if stamp > self.reserved_until:
            raise NotReserved(stamp)
        self.last = stamp
        return stamp
