"""Filters: which entities a query asks for, and between which keys they lie.

A comparison of a property that is absent, or of another type than the constant, is false whatever
the operator, `ne` included; `not` makes it true. The three types of numbers compare with each
other, by what they are worth. Texts compare by code points, which is also the order of keys; GUIDs
and binaries by their bytes; false is less than true; NaN is as IEEE 754 wants it.

A filter is compiled once into functions that call each other, because a scan asks them of every
entity that it passes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, Final, NamedTuple, TypeAlias, cast

import msgspec

from etagere.errors import Refusal
from etagere.model.tables import Edm, Entity, Keys
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
    """Whether an entity is asked for."""
    may_match: Callable[[Entity], bool]
    """What can be said without the keys: nothing else matches."""
    asks_of_keys: bool
    """Whether that is not all."""

    def bounds(self) -> KeyBounds:
        """Nothing outside of them matches."""
        return _bounds(self.condition)


def parse_filter(text: str) -> Filter | Refusal:
    """The meaning of `$filter`. A blank one lets everything through."""
    condition = parse_condition(text)
    if isinstance(condition, Refusal):
        return condition
    matches = _matcher(condition)
    rest = _without_keys(condition)
    return Filter(
        condition, matches, _anything if rest is None else _keyless(rest), rest is not condition
    )


def _anything(_entity: Entity) -> bool:
    return True


def _keyless(condition: Condition) -> Callable[[Entity], bool]:
    matches = _matcher(condition)
    return lambda entity: matches(_NO_KEYS, entity)


def parse_select(text: str | None) -> tuple[str, ...] | None:
    """The names in `$select`, each once; None is all of them."""
    if not text:
        return None
    names = [name.strip() for name in text.split(",")]
    chosen = tuple(dict.fromkeys(filter(None, names)))
    return None if not chosen or "*" in chosen else chosen


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


def _matcher(condition: Condition) -> Matcher:
    match condition:
        case Comparison():
            return _compares(condition)
        case Not():
            return _not(_matcher(condition.part))
        case AllOf():
            return _all(tuple(map(_matcher, condition.parts)))
        case AnyOf():
            return _any(tuple(map(_matcher, condition.parts)))


def _not(matcher: Matcher) -> Matcher:
    return lambda keys, entity: not matcher(keys, entity)


# Two loops that all() and any() would say shorter: their generators take twice the time.


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


def _compares(comparison: Comparison) -> Matcher:
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
    return _compares_property(name, compare, literal)


def _compares_property(name: str, compare: _Compare, literal: Literal) -> Matcher:
    value = literal.value
    types = _NUMBERS if literal.type.value in _NUMBERS else literal.type.value
    # The entities of a table are mostly alike: where the name was last, it will be again.
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


# What can be said without the keys

_NO_KEYS: Final = Keys("", "")


def _without_keys(condition: Condition) -> Condition | None:
    """A condition that is met wherever this one is and that asks nothing of keys; None if there is
    no other than that anything will do."""
    if not _names(condition) & _KEYS:
        return condition
    match condition:
        case AllOf():
            parts = _parts_without_keys(condition)
            return AllOf(parts) if parts else None
        case AnyOf():
            parts = _parts_without_keys(condition)
            return AnyOf(parts) if len(parts) == len(condition.parts) else None
        case _:
            # To leave something out of what is negated would ask for more, not for less.
            return None


def _parts_without_keys(condition: AllOf | AnyOf) -> tuple[Condition, ...]:
    found = [_without_keys(part) for part in condition.parts]
    return tuple([part for part in found if part is not None])


_KEYS: Final = frozenset({PARTITION_KEY, ROW_KEY})


def _names(condition: Condition) -> frozenset[str]:
    match condition:
        case Comparison():
            return frozenset({condition.name})
        case Not():
            return _names(condition.part)
        case AllOf() | AnyOf():
            return frozenset().union(*map(_names, condition.parts))


# Bounds


class KeyRange(NamedTuple):
    """The texts from `low` on and before `high`; None is no end.

    Every range of keys can be said so, because the first text after `k` is `k` and a NUL.
    """

    low: str = ""
    high: str | None = None

    @property
    def is_empty(self) -> bool:
        return self.high is not None and self.low >= self.high

    @property
    def only(self) -> str | None:
        """The one text that is in it, if there is just one."""
        return self.low if self.high == _next(self.low) else None

    def meet(self, other: KeyRange) -> KeyRange:
        """What is in both."""
        highs = [high for high in (self.high, other.high) if high is not None]
        return KeyRange(max(self.low, other.low), min(highs, default=None))

    def hull(self, other: KeyRange) -> KeyRange:
        """What is in either, and what lies between them."""
        low = min(self.low, other.low)
        if self.high is None or other.high is None:
            return KeyRange(low)
        return KeyRange(low, max(self.high, other.high))


def _next(text: str) -> str:
    return text + "\0"


class KeyBounds(NamedTuple):
    """Both keys of whatever matches are in these."""

    partition: KeyRange = KeyRange()
    row: KeyRange = KeyRange()

    @property
    def is_empty(self) -> bool:
        return self.partition.is_empty or self.row.is_empty

    @property
    def is_point(self) -> bool:
        """Whether no more than one entity can be in them."""
        return self.partition.only is not None and self.row.only is not None

    @property
    def first(self) -> Keys:
        """Nothing before this matches, in the order of keys."""
        return Keys(self.partition.low, self.row.low)

    @property
    def stop(self) -> Keys | None:
        """Neither this nor anything after it matches; None is no end. Rows bound this only
        within a single partition."""
        if self.is_empty:
            return self.first
        if self.partition.high is None:
            return None
        if self.partition.only is not None and self.row.high is not None:
            return Keys(self.partition.low, self.row.high)
        return Keys(self.partition.high, "")

    def meet(self, other: KeyBounds) -> KeyBounds:
        return KeyBounds(self.partition.meet(other.partition), self.row.meet(other.row))

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
            return reduce(KeyBounds.meet, map(_bounds, condition.parts), _UNBOUNDED)
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
