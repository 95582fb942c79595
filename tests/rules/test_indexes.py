"""Index keys of property values, and the ranges that filters search: order-preserving and
complete."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etagere.model.tables import Edm, Entity, Keys, Properties
from etagere.rules.filter_literals import Literal
from etagere.rules.filter_parsing import AllOf, AnyOf, Comparison, Condition, Not, Operator
from etagere.rules.filters import _matcher, parse_filter
from etagere.rules.indexes import (
    INDEXED_BYTES_MAX,
    RANGES_MAX,
    Range,
    RangesByProperty,
    by_selectivity,
    encode_value,
    index_ranges,
    indexed_value,
)

# Few different values, and those at boundaries, so that examples are often close to each other.
_CHARACTERS = "\x00a\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff"
_TEXTS = st.one_of(
    st.text(st.sampled_from(_CHARACTERS), max_size=3),
    # They differ only near the point where they are truncated.
    st.builds(
        lambda length, end: "a" * length + end,
        st.integers(INDEXED_BYTES_MAX - 6, INDEXED_BYTES_MAX + 2),
        st.text(st.sampled_from(_CHARACTERS), max_size=3),
    ),
)
_LONGS = st.one_of(
    st.integers(-3, 3),
    st.integers(2**53 - 3, 2**53 + 3),
    st.integers(-(2**53) - 3, -(2**53) + 3),
    st.sampled_from((-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1)),
    st.integers(-(2**63), 2**63 - 1),
)
_DOUBLES = st.one_of(
    st.sampled_from((-0.0, 0.0, 5e-324, -5e-324, 0.5, 2.0**53, 2.0**63, -(2.0**63))),
    st.integers(-3, 3).map(float),
    st.floats(),
)
_BINARIES = st.one_of(
    st.binary(max_size=3),
    st.builds(
        lambda length, end: b"\xff" * length + end,
        st.integers(INDEXED_BYTES_MAX - 3, INDEXED_BYTES_MAX + 1),
        st.binary(max_size=2),
    ),
)
_VALUES: Final[dict[Edm, st.SearchStrategy[Any]]] = {
    Edm.STRING: _TEXTS,
    Edm.INT32: st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3),
    Edm.INT64: _LONGS,
    Edm.DOUBLE: _DOUBLES,
    Edm.BOOLEAN: st.booleans(),
    Edm.DATETIME: st.integers(-(2**40), 2**62) | st.integers(-2, 2),
    Edm.GUID: st.binary(min_size=16, max_size=16),
    Edm.BINARY: _BINARIES,
}
_CLASSES: Final = (
    (Edm.INT32, Edm.INT64, Edm.DOUBLE),
    *((edm,) for edm in (Edm.STRING, Edm.BOOLEAN, Edm.DATETIME, Edm.GUID, Edm.BINARY)),
)
_NAMES: Final = ("A", "B", "RowKey", "PartitionKey", "Timestamp")


def _typed(edm: Edm) -> st.SearchStrategy[tuple[Edm, Any]]:
    return _VALUES[edm].map(lambda value: (edm, value))


TYPED: Final = st.sampled_from(list(_VALUES)).flatmap(_typed)
ALIKE: Final = st.sampled_from(_CLASSES).flatmap(
    lambda types: st.lists(st.sampled_from(types).flatmap(_typed), min_size=2, max_size=6)
)


# Values


@given(ALIKE)
@example([(Edm.INT64, 2**53), (Edm.DOUBLE, 2.0**53), (Edm.INT64, 2**53 + 1)])
@example([(Edm.STRING, "a" * 62 + "\x7f"), (Edm.STRING, "a" * 61 + "\uffff")])
@example([(Edm.DOUBLE, -0.0), (Edm.INT32, 0), (Edm.DOUBLE, 0.0)])
def test_the_order_is_kept(values: list[tuple[Edm, Any]]) -> None:
    for one, value in values:
        for other, another in values:
            left, right = encode_value(one.value, value), encode_value(other.value, another)
            if left is None or right is None:
                assert math.isnan(value) or math.isnan(another)
            elif value < another:
                assert left <= right
            elif value == another:
                assert left == right


@given(TYPED)
def test_index_keys_are_short(typed: tuple[Edm, Any]) -> None:
    edm, value = typed
    kept = encode_value(edm.value, value)
    assert kept is None or 1 <= len(kept) <= INDEXED_BYTES_MAX


@given(TYPED, TYPED)
def test_types_are_kept_apart(one: tuple[Edm, Any], other: tuple[Edm, Any]) -> None:
    alike = any(one[0] in types and other[0] in types for types in _CLASSES)
    left, right = encode_value(one[0].value, one[1]), encode_value(other[0].value, other[1])
    if left is not None and right is not None:
        assert (left[:1] == right[:1]) == alike


def test_similar_values_have_different_keys() -> None:
    """If they had not, an index would still find them, but be of little use."""
    for values in (
        (-math.inf, -1e300, -1.0, -5e-324, 0.0, 5e-324, 0.1, 1.0, 1e300, math.inf),
        ("", "\0", "a", "a\0", "aa", "b", "é", "\U0001f984"),
        (b"", b"\0", b"\0\0", b"\1", b"\xff", b"\xff\xff"),
    ):
        letter = {float: "d", str: "s", bytes: "x"}[type(values[0])]
        kept = [encode_value(letter, value) for value in values]
        assert all(left is not None and right is not None for left, right in pairwise(kept))
        assert kept == sorted(set(kept), key=lambda value: value or b"")


def test_lone_surrogates() -> None:
    assert encode_value("s", "\ud800") is not None


def test_keys_of_text_without_nul_have_no_nul() -> None:
    """Keys with a NUL take longer to read."""
    for letter, value in (
        ("i", 0),
        ("d", 1.0),
        ("l", 256),
        ("t", 0),
        ("g", bytes(16)),
        ("b", False),
    ):
        kept = encode_value(letter, value)
        assert kept is not None
        assert b"\0" not in kept


def test_nan_and_absent_values_are_not_indexed() -> None:
    (other_nan,) = struct.unpack(">d", b"\xff\xf8\x00\x00\x00\x00\x00\x01")
    for value in (math.nan, -math.nan, other_nan):
        assert encode_value("d", value) is None
    entity = Entity(1, Properties(("A",), "d", (math.nan,)))
    assert indexed_value("A", Keys("p", "r"), entity) is None
    assert indexed_value("B", Keys("p", "r"), entity) is None
    assert indexed_value("RowKey", Keys("p", "r"), entity) == encode_value("s", "r")


# Filters

_COMPARISONS: Final = st.builds(
    lambda name, asked, typed: Comparison(name, asked, Literal(*typed)),
    st.sampled_from(_NAMES),
    st.sampled_from(Operator),
    TYPED,
)
CONDITIONS: Final = st.recursive(
    _COMPARISONS,
    lambda parts: st.one_of(
        st.lists(parts, max_size=4).map(lambda some: AllOf(tuple(some))),
        st.lists(parts, max_size=4).map(lambda some: AnyOf(tuple(some))),
        parts.map(lambda part: Not(part, 1)),
    ),
    max_leaves=8,
)


def lies_in(found: RangesByProperty, keys: Keys, entity: Entity) -> bool:
    for name, ranges in found.items():
        kept = indexed_value(name, keys, entity)
        if kept is None or not any(range_.first <= kept <= range_.last for range_ in ranges):
            return False
    return True


def _entity(cells: dict[str, tuple[Edm, Any]]) -> Entity:
    types = "".join(edm.value for edm, _ in cells.values())
    return Entity(0, Properties(tuple(cells), types, tuple(value for _, value in cells.values())))


@given(CONDITIONS, st.dictionaries(st.sampled_from(("A", "B")), TYPED), _TEXTS)
def test_every_match_is_in_the_searched_ranges(
    condition: Condition, cells: dict[str, tuple[Edm, Any]], row: str
) -> None:
    found = index_ranges(condition)
    for ranges in found.values():
        assert len(ranges) <= RANGES_MAX
        assert all(range_.first <= range_.last for range_ in ranges)
        assert all(one.last < other.first for one, other in pairwise(ranges))
    keys, entity = Keys("p", row), _entity(cells)
    if _matcher(condition)(keys, entity):
        assert lies_in(found, keys, entity)


_COMPARE: Final[dict[Operator, Callable[[Any, Any], bool]]] = {
    Operator.EQ: operator.eq,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
}


@given(ALIKE, st.sampled_from(list(_COMPARE)))
@example([(Edm.INT64, 2**53 + 1), (Edm.DOUBLE, 2.0**53)], Operator.GT)
@example([(Edm.STRING, "a" * 80), (Edm.STRING, "a" * 79)], Operator.GT)
@example([(Edm.STRING, "a" * 79), (Edm.STRING, "a" * 80)], Operator.LT)
@example([(Edm.BINARY, b"\xff" * 80), (Edm.BINARY, b"")], Operator.GE)
def test_each_comparison_searches_all_its_matches(
    values: list[tuple[Edm, Any]], asked: Operator
) -> None:
    """Values of one type, which are often equal or nearly equal."""
    for edm, value in values:
        for literal_type, literal in values:
            found = index_ranges(Comparison("A", asked, Literal(literal_type, literal)))
            if _COMPARE[asked](value, literal):
                assert lies_in(found, Keys("", ""), _entity({"A": (edm, value)}))


def _asked(text: str) -> RangesByProperty:
    parsed = parse_filter(text)
    assert hasattr(parsed, "condition"), parsed
    return index_ranges(parsed.condition)


def _kept(value: float) -> bytes:
    kept = encode_value("d", value)
    assert kept is not None
    return kept


ONE, TWO, FIVE = _kept(1), _kept(2), _kept(5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A eq 1", {"A": (Range(ONE, ONE),)}),
        ("A ge 1 and A lt 5", {"A": (Range(ONE, FIVE),)}),
        ("A ge 1 and A lt 5 and B eq 2", {"A": (Range(ONE, FIVE),), "B": (Range(TWO, TWO),)}),
        ("A eq 5 or A eq 1", {"A": (Range(ONE, ONE), Range(FIVE, FIVE))}),
        ("(A eq 5 or A eq 1) and A le 2", {"A": (Range(ONE, ONE),)}),
        ("(A eq 5 or A eq 1) and A eq 2", {"A": ()}),
        ("(A ge 1 and A le 2) or (A ge 2 and A le 5)", {"A": (Range(ONE, FIVE),)}),
        ("(A ge 1 and A le 5) or A eq 2", {"A": (Range(ONE, FIVE),)}),
        ("(A eq 1 and B eq 2) or (A eq 5)", {"A": (Range(ONE, ONE), Range(FIVE, FIVE))}),
        ("RowKey eq 'r'", {"RowKey": (Range(b"sr", b"sr"),)}),
        ("RowKey eq 5", {"RowKey": ()}),
        ("A eq NaN", {"A": ()}),
        # Filters that no index can help with.
        ("A eq 1 or B eq 2", {}),
        ("A eq 1 or B eq 2 or A eq 5", {}),
        ("A ne 1", {}),
        ("not (A eq 1)", {}),
        ("PartitionKey eq 'p'", {}),
        ("Timestamp gt datetime'2020-01-01T00:00:00Z'", {}),
        ("true", {}),
        ("false", {}),
    ],
)
def test_searched_ranges(text: str, expected: RangesByProperty) -> None:
    assert _asked(text) == expected


def test_too_many_alternatives_become_one_range() -> None:
    some = " or ".join(f"A eq {number}" for number in range(RANGES_MAX))
    assert len(_asked(some)["A"]) == RANGES_MAX
    more = f"{some} or A eq 100"
    assert _asked(more) == {"A": (Range(_kept(0), _kept(100)),)}


def test_the_most_selective_range_comes_first() -> None:
    found = _asked("D gt 1 and C gt 1 and C lt 2 and B eq 1 and (A eq 1 or A eq 2)")
    assert by_selectivity(found) == ["B", "A", "C", "D"]
