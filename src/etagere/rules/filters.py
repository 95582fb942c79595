"""Filters of entities: matching, and the bounds of the keys of matches.

A comparison with a property that is absent, or of another type than the constant, is false for
every operator including `ne`; `not` makes it true. The three types of numbers are compared by
value. Text is compared by code points, which is also the order of keys; GUIDs and binaries by their
bytes; false is less than true; NaN behaves as in IEEE 754.

A filter is compiled once into nested functions, because a scan calls them for every entity.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final, NamedTuple, TypeAlias, cast

import msgspec

from etagere.errors import Refusal
from etagere.model.tables import Edm, Entity, Keys
from etagere.rules.entities import PROPERTIES_MAX
from etagere.rules.filter_literals import Literal
from etagere.rules.filter_parsing import (
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    Not,
    Operator,
    parse_condition,
)

PARTITION_KEY: Final = "PartitionKey"
ROW_KEY: Final = "RowKey"
TIMESTAMP: Final = "Timestamp"

Matcher: TypeAlias = Callable[[Keys, Entity], bool]


class Filter(msgspec.Struct, frozen=True):
    condition: Condition
    matches: Matcher
    """Returns whether an entity matches."""
    may_match: Callable[[Entity], bool]
    """A necessary condition that does not depend on the keys."""
    depends_on_keys: bool
    """Whether the condition depends on the keys too."""
    terms: int = 1
    """The number of comparisons, which determines the cost of matching one entity."""

    def bounds(self) -> KeyBounds:
        """Returns bounds of the keys of all matches."""
        return _bounds(self.condition)


def parse_filter(text: str) -> Filter | Refusal:
    """Compiles `$filter`; an empty one matches everything."""
    condition = parse_condition(text)
    if isinstance(condition, Refusal):
        return condition
    terms = _count_terms(condition)
    positions = _Positions() if terms > _FEW_TERMS_MAX else None
    matches = _matcher(condition, positions)
    rest = _without_keys(condition)
    if rest is condition:
        may_match = _keyless(matches)
    else:
        may_match = _anything if rest is None else _keyless(_matcher(rest, positions))
    return Filter(condition, matches, may_match, rest is not condition, terms)


def _count_terms(condition: Condition) -> int:
    match condition:
        case Comparison():
            return 1
        case Not():
            return _count_terms(condition.part)
        case AllOf() | AnyOf():
            return sum(map(_count_terms, condition.parts))


def _anything(_entity: Entity) -> bool:
    return True


def _keyless(matches: Matcher) -> Callable[[Entity], bool]:
    return lambda entity: matches(_NO_KEYS, entity)


SELECTED_MAX: Final = PROPERTIES_MAX + len((PARTITION_KEY, ROW_KEY, TIMESTAMP))
"""The maximum number of properties of an entity."""


def parse_select(text: str | None) -> tuple[str, ...] | Refusal | None:
    """Returns the names in `$select`, each once; None for all properties."""
    if not text:
        return None
    names = [name.strip() for name in text.split(",")]
    chosen = tuple(dict.fromkeys(filter(None, names)))
    if not chosen or "*" in chosen:
        return None
    if len(chosen) > SELECTED_MAX:
        reason = f"$select has more than {SELECTED_MAX} properties."
        return Refusal("InvalidInput", {"Reason": reason})
    return chosen


# Matching

_Compare: TypeAlias = Callable[[Any, Any], bool]

_COMPARE: Final[dict[Operator, _Compare]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
}
_NUMBERS: Final = Edm.INT32.value + Edm.INT64.value + Edm.DOUBLE.value
_ALWAYS_THERE: Final = {
    PARTITION_KEY: Edm.STRING,
    ROW_KEY: Edm.STRING,
    TIMESTAMP: Edm.DATETIME,
}
_TICKS_FROM_YEAR_1_TO_1970 = 621_355_968_000_000_000


def _matcher(condition: Condition, positions: _Positions | None = None) -> Matcher:
    match condition:
        case Comparison():
            return _compares(condition, positions)
        case Not():
            return _not(_matcher(condition.part, positions))
        case AllOf():
            return _all(tuple([_matcher(part, positions) for part in condition.parts]))
        case AnyOf():
            return _any(tuple([_matcher(part, positions) for part in condition.parts]))


_FEW_TERMS_MAX: Final = 8
"""Up to this many comparisons search the names of an entity for their property. If there are more,
the positions of all names are computed once per entity."""


class _Positions:
    """The positions of the properties of one entity, by name."""

    __slots__ = ("_names", "_places")

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._places: dict[str, int] = {}

    def of(self, names: tuple[str, ...]) -> dict[str, int]:
        if names is not self._names:
            self._names = names
            self._places = dict(zip(names, range(len(names)), strict=True))
        return self._places


def _not(matcher: Matcher) -> Matcher:
    return lambda keys, entity: not matcher(keys, entity)


# Loops instead of all() and any(), whose generators take twice the time.


def _all(matchers: tuple[Matcher, ...]) -> Matcher:
    def matches(keys: Keys, entity: Entity) -> bool:
        for matcher in matchers:  # noqa: SIM110
            if not matcher(keys, entity):
                return False
        return True

    return matches


def _any(matchers: tuple[Matcher, ...]) -> Matcher:
    def matches(keys: Keys, entity: Entity) -> bool:
        for matcher in matchers:  # noqa: SIM110
            if matcher(keys, entity):
                return True
        return False

    return matches


def _compares(comparison: Comparison, positions: _Positions | None) -> Matcher:
    name, literal = comparison.name, comparison.literal
    if name in _ALWAYS_THERE and literal.type is not _ALWAYS_THERE[name]:
        return lambda _keys, _entity: False
    compare, value = _COMPARE[comparison.operator], literal.value
    if name == PARTITION_KEY:
        return lambda keys, _: compare(keys.partition, value)
    if name == ROW_KEY:
        return lambda keys, _: compare(keys.row, value)
    if name == TIMESTAMP:
        stamp = cast("int", value) - _TICKS_FROM_YEAR_1_TO_1970
        return lambda _, entity: compare(entity.stamp, stamp)
    if positions is not None:
        return _compares_found(name, compare, literal, positions)
    return _compares_property(name, compare, literal)


def _comparable_types(literal: Literal) -> str:
    return _NUMBERS if literal.type.value in _NUMBERS else literal.type.value


def _compares_found(
    name: str, compare: _Compare, literal: Literal, positions: _Positions
) -> Matcher:
    value, types, places_of = literal.value, _comparable_types(literal), positions.of

    def matches(_keys: Keys, entity: Entity) -> bool:
        properties = entity.properties
        at = places_of(properties.names).get(name)
        if at is None:
            return False
        return properties.types[at] in types and compare(properties.values[at], value)

    return matches


def _compares_property(name: str, compare: _Compare, literal: Literal) -> Matcher:
    value, types = literal.value, _comparable_types(literal)
    # The entities of a table mostly have the same properties: try the last position first.
    expected_at = 0

    def matches(_keys: Keys, entity: Entity) -> bool:
        nonlocal expected_at
        properties = entity.properties
        names, at = properties.names, expected_at
        if at >= len(names) or names[at] != name:
            if name not in names:
                return False
            expected_at = at = names.index(name)
        return properties.types[at] in types and compare(properties.values[at], value)

    return matches


# Conditions without keys

_NO_KEYS: Final = Keys("", "")


def _without_keys(condition: Condition) -> Condition | None:
    """Returns a weaker condition that does not depend on keys; None if there is none but "always".
    Returns the same condition if it does not depend on keys."""
    match condition:
        case Comparison():
            return None if condition.name in _KEYS else condition
        case Not():
            # Weakening a negated condition would make the whole stronger.
            return condition if _without_keys(condition.part) is condition.part else None
        case AllOf():
            parts = [_without_keys(part) for part in condition.parts]
            if _are_same(parts, condition.parts):
                return condition
            kept = tuple([part for part in parts if part is not None])
            return AllOf(kept) if kept else None
        case AnyOf():
            parts = [_without_keys(part) for part in condition.parts]
            if _are_same(parts, condition.parts):
                return condition
            kept = tuple([part for part in parts if part is not None])
            return AnyOf(kept) if len(kept) == len(parts) else None


def _are_same(found: Sequence[Condition | None], parts: Sequence[Condition]) -> bool:
    return all(map(operator.is_, found, parts))


_KEYS: Final = frozenset({PARTITION_KEY, ROW_KEY})


# Bounds


class KeyRange(NamedTuple):
    """The keys from `low` (inclusive) to `high` (exclusive); None is no bound.

    Every range of keys has this form, because the first key after `k` is `k` followed by NUL.
    """

    low: str = ""
    high: str | None = None

    @property
    def is_empty(self) -> bool:
        return self.high is not None and self.low >= self.high

    @property
    def only(self) -> str | None:
        """The only key in the range, if there is just one."""
        return self.low if self.high == _next(self.low) else None

    def intersect(self, other: KeyRange) -> KeyRange:
        """Returns the intersection."""
        highs = [high for high in (self.high, other.high) if high is not None]
        return KeyRange(max(self.low, other.low), min(highs, default=None))

    def hull(self, other: KeyRange) -> KeyRange:
        """Returns the smallest range that contains both."""
        low = min(self.low, other.low)
        if self.high is None or other.high is None:
            return KeyRange(low)
        return KeyRange(low, max(self.high, other.high))


def _next(text: str) -> str:
    return text + "\0"


class KeyBounds(NamedTuple):
    """Bounds of the partition and row keys of all matches."""

    partition: KeyRange = KeyRange()
    row: KeyRange = KeyRange()

    @property
    def is_empty(self) -> bool:
        return self.partition.is_empty or self.row.is_empty

    @property
    def is_point(self) -> bool:
        """Whether at most one entity is within the bounds."""
        return self.partition.only is not None and self.row.only is not None

    @property
    def first(self) -> Keys:
        """The first keys, in order, that can match."""
        return Keys(self.partition.low, self.row.low)

    @property
    def stop(self) -> Keys | None:
        """The first keys, in order, after all matches; None is no bound. Rows matter only within a
        single partition."""
        if self.is_empty:
            return self.first
        if self.partition.high is None:
            return None
        if self.partition.only is not None and self.row.high is not None:
            return Keys(self.partition.low, self.row.high)
        return Keys(self.partition.high, "")

    def intersect(self, other: KeyBounds) -> KeyBounds:
        return KeyBounds(self.partition.intersect(other.partition), self.row.intersect(other.row))

    def hull(self, other: KeyBounds) -> KeyBounds:
        if self.is_empty or other.is_empty:
            return other if self.is_empty else self
        return KeyBounds(self.partition.hull(other.partition), self.row.hull(other.row))


_UNBOUNDED: Final = KeyBounds()
_NOTHING: Final = KeyBounds(KeyRange("", ""), KeyRange("", ""))

_RANGES: Final[dict[Operator, Callable[[str], KeyRange]]] = {
    Operator.EQ: lambda key: KeyRange(key, _next(key)),
    Operator.NE: lambda _: KeyRange(),
    Operator.GT: lambda key: KeyRange(_next(key)),
    Operator.GE: KeyRange,
    Operator.LT: lambda key: KeyRange("", key),
    Operator.LE: lambda key: KeyRange("", _next(key)),
}


def _bounds(condition: Condition) -> KeyBounds:
    match condition:
        case Comparison():
            return _comparison_bounds(condition)
        case AllOf():
            return reduce(KeyBounds.intersect, map(_bounds, condition.parts), _UNBOUNDED)
        case AnyOf():
            return reduce(KeyBounds.hull, map(_bounds, condition.parts), _NOTHING)
        case Not():
            return _UNBOUNDED


def _comparison_bounds(comparison: Comparison) -> KeyBounds:
    if comparison.name not in (PARTITION_KEY, ROW_KEY):
        return _UNBOUNDED
    key = comparison.literal.value
    if not isinstance(key, str):
        return _NOTHING
    keys = _RANGES[comparison.operator](key)
    return KeyBounds(partition=keys) if comparison.name == PARTITION_KEY else KeyBounds(row=keys)
