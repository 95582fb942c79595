"""Indexes on properties: the encoding of values, and the ranges that a filter has to search.

An index yields candidates, to which the whole filter is applied. So values may be rounded and
truncated as long as their order is kept: different values may become equal, but never change their
order. Ranges include both ends and are never too narrow.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from etagere.clock import TICKS_PER_SECOND
from etagere.model.tables import Edm, Entity, Keys, PropertyIndex
from etagere.rules.filter_parsing import AllOf, AnyOf, Comparison, Condition, Not, Operator
from etagere.rules.filters import PARTITION_KEY, ROW_KEY, TIMESTAMP

INDEXED_BYTES_MAX: Final = 64
RANGES_MAX: Final = 16
INDEXES_MAX: Final = 4
"""Per table, because every change has to update each of them."""


# Choice of indexes
#
# Uses of an index, and queries that lacked one, are counted with a half-life of an hour. An index
# that is lacked more often than the least used one is used replaces that one.

HALF_LIFE_TICKS: Final = 3_600 * TICKS_PER_SECOND
REPLACEABLE_AFTER_TICKS: Final = 60 * TICKS_PER_SECOND
"""The minimum age of an index before it is replaced: its uses need time to be counted, and building
one is work."""
UNUSED_TICKS_MAX: Final = 14 * 24 * 3_600 * TICKS_PER_SECOND
"""An index that was not used for this long is dropped."""
DEMAND_MIN: Final = 3
DEMAND_MAX: Final = 64
"""A cap, so that one client that repeats a query does not replace an index that many use."""
_DEMAND_OVER_USE: Final = 2


def decayed(score: float, elapsed_ticks: int) -> float:
    """Returns a score after exponential decay."""
    return score * math.exp2(-max(0, elapsed_ticks) / HALF_LIFE_TICKS)


def index_to_replace(
    demand: float, indexes: Sequence[PropertyIndex], now: int
) -> PropertyIndex | None:
    """Returns the index to replace by one that this many queries lacked; None if there is none."""
    settled = [index for index in indexes if now - index.created_at >= REPLACEABLE_AFTER_TICKS]
    if demand < DEMAND_MIN or not settled:
        return None

    def use(index: PropertyIndex) -> float:
        return decayed(index.score, now - index.used_at)

    weakest = min(settled, key=use)
    return weakest if min(demand, DEMAND_MAX) > _DEMAND_OVER_USE * use(weakest) else None


def is_unused(index: PropertyIndex, now: int) -> bool:
    """Returns whether an index has not been used for so long that it is dropped."""
    return now - max(index.created_at, index.used_at) > UNUSED_TICKS_MAX


# Values
#
# The first byte is the class of comparable values. What follows contains no NUL, which would have
# to be escaped in keys, except in texts and binaries.

_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1
_DOUBLE: Final = struct.Struct(">d")
_BITS: Final = struct.Struct(">Q")


def _number(value: float) -> bytes | None:
    """Encodes a number as a double; an Int64 without an exact one is rounded."""
    double = float(value)
    if double != double:  # noqa: PLR0124
        # NaN: no comparison that uses an index is true for it.
        return None
    # Makes -0.0 equal to 0.0.
    (bits,) = _BITS.unpack(_DOUBLE.pack(double + 0.0))
    return b"n%016x" % (bits ^ _ALL if bits & _SIGN else bits | _SIGN)


def _text(value: str) -> bytes:
    # Truncated at a byte, not at a character, which keeps the order.
    return b"s" + value.encode(errors="surrogatepass")[: INDEXED_BYTES_MAX - 1]


_ENCODE: Final[dict[str, Callable[[Any], bytes | None]]] = {
    Edm.STRING.value: _text,
    Edm.INT32.value: _number,
    Edm.INT64.value: _number,
    Edm.DOUBLE.value: _number,
    Edm.BOOLEAN.value: lambda value: b"b1" if value else b"b0",
    # The times of a filter may be before the first valid one.
    Edm.DATETIME.value: lambda value: b"t%016x" % (value + _SIGN),
    Edm.GUID.value: lambda value: b"g" + value.hex().encode(),
    Edm.BINARY.value: lambda value: b"x" + value[: INDEXED_BYTES_MAX - 1],
}


def encode_value(letter: str, value: Any) -> bytes | None:
    """Encodes a value; returns None if no filter can find it."""
    return _ENCODE[letter](value)


def indexed_value(name: str, keys: Keys, entity: Entity) -> bytes | None:
    """Returns the encoded value of a property of an entity; None if it has none."""
    if name == ROW_KEY:
        return _text(keys.row)
    properties = entity.properties
    if name not in properties.names:
        return None
    at = properties.names.index(name)
    return _ENCODE[properties.types[at]](properties.values[at])


# Ranges of a filter


class Range(NamedTuple):
    """A range of encoded values, both ends included."""

    first: bytes
    last: bytes

    @property
    def is_point(self) -> bool:
        return self.first == self.last

    @property
    def is_closed(self) -> bool:
        """Whether the filter limits both ends."""
        return len(self.first) > 1 and not self.last.endswith(_END)


Ranges = tuple[Range, ...]
"""Ordered, disjoint ranges. An empty tuple means that nothing can match."""

RangesByProperty = dict[str, Ranges]
"""Ranges by property name. Every match is in the ranges of all of them."""

_END: Final = b"\xff" * (INDEXED_BYTES_MAX - 1)
_NOT_INDEXED: Final = frozenset({PARTITION_KEY, TIMESTAMP})


def index_ranges(condition: Condition) -> RangesByProperty:
    match condition:
        case Comparison():
            return _comparison_ranges(condition)
        case AllOf():
            return _all_of([index_ranges(part) for part in condition.parts])
        case AnyOf():
            return _either([index_ranges(part) for part in condition.parts])
        case Not():
            return {}


def by_selectivity(found: RangesByProperty) -> list[str]:
    """Returns the names of the properties, the one with probably the fewest matches first."""

    def rank(name: str) -> tuple[int, int]:
        ranges = found[name]
        if all(range_.is_point for range_ in ranges):
            return 0, len(ranges)
        return (1 if all(range_.is_closed for range_ in ranges) else 2), len(ranges)

    return sorted(found, key=rank)


def _comparison_ranges(comparison: Comparison) -> RangesByProperty:
    name, literal = comparison.name, comparison.literal
    if name in _NOT_INDEXED or comparison.operator is Operator.NE:
        return {}
    if name == ROW_KEY and literal.type is not Edm.STRING:
        return {name: ()}
    value = encode_value(literal.type.value, literal.value)
    if value is None:
        return {name: ()}
    kind = value[:1]
    match comparison.operator:
        case Operator.EQ:
            return {name: (Range(value, value),)}
        case Operator.GT | Operator.GE:
            return {name: (Range(value, kind + _END),)}
        case _:
            return {name: (Range(kind, value),)}


def _all_of(parts: list[RangesByProperty]) -> RangesByProperty:
    found: RangesByProperty = {}
    for part in parts:
        for name, ranges in part.items():
            found[name] = _intersection(found[name], ranges) if name in found else ranges
    return found


def _either(alternatives: list[RangesByProperty]) -> RangesByProperty:
    """Returns the ranges of a disjunction: only those of properties that all alternatives limit."""
    if not alternatives:
        return {}
    names = [name for name in alternatives[0] if all(name in other for other in alternatives)]
    return {
        name: _union([range_ for found in alternatives for range_ in found[name]]) for name in names
    }


def _intersection(left: Ranges, right: Ranges) -> Ranges:
    """Returns the intersection, in one pass over both."""
    met: list[Range] = []
    at, other_at = 0, 0
    while at < len(left) and other_at < len(right):
        one, other = left[at], right[other_at]
        first, last = max(one.first, other.first), min(one.last, other.last)
        if first <= last:
            met.append(Range(first, last))
        if one.last <= other.last:
            at += 1
        else:
            other_at += 1
    return _union(met)


def _union(ranges: Iterable[Range]) -> Ranges:
    united: list[Range] = []
    for range_ in sorted(ranges):
        if united and range_.first <= united[-1].last:
            united[-1] = Range(united[-1].first, max(united[-1].last, range_.last))
        else:
            united.append(range_)
    if len(united) > RANGES_MAX:
        return (Range(united[0].first, united[-1].last),)
    return tuple(united)
