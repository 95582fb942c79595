"""Filters: every comparison and combination, compared with an independent evaluation; bounds of a
filter leave out no match."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product
from math import inf, nan
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.errors import Refusal
from etagere.model.tables import Edm, Entity, Keys, Properties, Value
from etagere.rules.conditions import format_etag
from etagere.rules.dates import parse_instant
from etagere.rules.filter_parsing import NESTING_MAX, TERMS_MAX
from etagere.rules.filters import (
    SELECTED_MAX,
    Filter,
    KeyBounds,
    KeyRange,
    parse_filter,
    parse_select,
)

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda left, right: left == right,
    "ne": lambda left, right: left != right,
    "gt": lambda left, right: left > right,
    "ge": lambda left, right: left >= right,
    "lt": lambda left, right: left < right,
    "le": lambda left, right: left <= right,
}
MIRRORED = {"eq": "eq", "ne": "ne", "gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}
NUMBERS = {Edm.INT32, Edm.INT64, Edm.DOUBLE}
KEYS = Keys("p", "r")


def read(text: str) -> Filter:
    filter_ = parse_filter(text)
    assert isinstance(filter_, Filter), filter_
    return filter_


def entity(stamp: int = 0, /, **properties: tuple[Edm, Value]) -> Entity:
    types = "".join(edm.value for edm, _ in properties.values())
    values = tuple(value for _, value in properties.values())
    return Entity(stamp, Properties(tuple(properties), types, values))


def matches(text: str, keys: Keys = KEYS, /, **properties: tuple[Edm, Value]) -> bool:
    return read(text).matches(keys, entity(**properties))


def flags(**values: bool) -> Entity:
    return entity(**{name: (Edm.BOOLEAN, value) for name, value in values.items()})


def test_malformed_filters_are_refused() -> None:
    refusal = parse_filter("a eq")
    assert isinstance(refusal, Refusal)
    assert refusal.code == "InvalidInput"


# Comparisons


class Sample(NamedTuple):
    """A value and how a filter writes it."""

    edm: Edm
    value: Value
    text: str


SAMPLES = [
    Sample(Edm.STRING, "", "''"),
    Sample(Edm.STRING, "1", "'1'"),
    Sample(Edm.STRING, "Zebra", "'Zebra'"),
    Sample(Edm.STRING, "apple", "'apple'"),
    Sample(Edm.STRING, "\uffff", "'\uffff'"),
    Sample(Edm.STRING, "\U0001f600", "'\U0001f600'"),
    Sample(Edm.INT32, 0, "0"),
    Sample(Edm.INT32, 1, "1"),
    Sample(Edm.INT32, -5, "-5"),
    Sample(Edm.INT64, 1, "1L"),
    Sample(Edm.INT64, 2**53 + 1, "9007199254740993L"),
    Sample(Edm.DOUBLE, 1.0, "1.0"),
    Sample(Edm.DOUBLE, 2.0**53, "9007199254740992d"),
    Sample(Edm.DOUBLE, -2.5, "-2.5"),
    Sample(Edm.DOUBLE, inf, "INF"),
    Sample(Edm.DOUBLE, nan, "NaN"),
    Sample(Edm.BOOLEAN, True, "true"),
    Sample(Edm.BOOLEAN, False, "false"),
    Sample(Edm.DATETIME, 0, "datetime'0001-01-01T00:00:00Z'"),
    Sample(Edm.DATETIME, 1, "datetime'0001-01-01T00:00:00.0000001Z'"),
    Sample(Edm.GUID, bytes(15) + b"\1", "guid'00000000-0000-0000-0000-000000000001'"),
    Sample(Edm.GUID, b"\1" + bytes(15), "guid'01000000-0000-0000-0000-000000000000'"),
    Sample(Edm.BINARY, b"", "X''"),
    Sample(Edm.BINARY, b"\1" + bytes(15), "X'01000000000000000000000000000000'"),
    Sample(Edm.BINARY, b"\xff", "binary'ff'"),
]


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_between_every_two_values(operator: str) -> None:
    for stored, constant in product(SAMPLES, SAMPLES):
        comparable = stored.edm == constant.edm or {stored.edm, constant.edm} <= NUMBERS
        expected = comparable and OPERATORS[operator](stored.value, constant.value)
        for text in (
            f"p {operator} {constant.text}",
            f"{constant.text} {MIRRORED[operator]} p",
        ):
            assert matches(text, p=(stored.edm, stored.value)) is expected, (stored, text)
            assert matches(f"not ({text})", p=(stored.edm, stored.value)) is not expected
            assert not matches(text, q=(stored.edm, stored.value))
            assert matches(f"not {text}", q=(stored.edm, stored.value))


def test_absent_is_not_unequal() -> None:
    assert not matches("p ne 5")
    assert not matches("p ne 5", p=(Edm.STRING, "5"))
    assert matches("not (p eq 5)")


def test_nan_compares_with_nothing() -> None:
    for operator in OPERATORS:
        for edm, value in ((Edm.DOUBLE, nan), (Edm.DOUBLE, 1.0), (Edm.INT32, 1)):
            assert matches(f"p {operator} NaN", p=(edm, value)) is (operator == "ne")


def test_a_name_on_its_own_is_a_boolean() -> None:
    assert matches("p", p=(Edm.BOOLEAN, True))
    assert not matches("p", p=(Edm.BOOLEAN, False))
    assert not matches("p", p=(Edm.INT32, 1))
    assert not matches("p")
    assert matches("not p", p=(Edm.BOOLEAN, False))
    assert matches("not p")


def test_constants_and_blanks() -> None:
    assert matches("true")
    assert matches("")
    assert matches("  ")
    assert not matches("false")
    assert not matches("not true")


def test_property_names_are_case_sensitive() -> None:
    assert not matches("P eq 5", p=(Edm.INT32, 5))
    assert not matches("partitionkey eq 'p'")


def test_properties_of_different_types() -> None:
    wanted = read("b eq 2")
    first, second, other = (Edm.INT32, 1), (Edm.INT32, 2), (Edm.STRING, "2")
    shapes = [
        (entity(b=second), True),
        (entity(a=first, b=second), True),
        (entity(b=second, a=first), True),
        (entity(a=first, c=first, b=second), True),
        (entity(a=first), False),
        (entity(), False),
        (entity(b=first), False),
        (entity(b=other), False),
        (entity(a=second, c=second, d=second), False),
    ]
    for (one, one_matches), (then, then_matches) in product(shapes, shapes):
        assert wanted.matches(KEYS, one) is one_matches
        assert wanted.matches(KEYS, then) is then_matches


# Keys and timestamp


@pytest.mark.parametrize("name", ["PartitionKey", "RowKey"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_keys_are_texts(name: str, operator: str) -> None:
    for key, constant in product(["", "Z", "a", "a\0", "b", "\U0001f600"], ["", "a", "\uffff"]):
        keys = Keys(key, "other") if name == "PartitionKey" else Keys("other", key)
        expected = OPERATORS[operator](key, constant)
        assert matches(f"{name} {operator} '{constant}'", keys) is expected
        assert matches(f"'{constant}' {MIRRORED[operator]} {name}", keys) is expected
    for constant in ("5", "true", "X'00'", "datetime'2024-01-01'"):
        assert not matches(f"{name} {operator} {constant}", Keys("5", "5"))


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_timestamp_is_a_datetime(operator: str) -> None:
    text = "2024-01-05T10:00:00.1234567Z"
    moment = parse_instant(text)
    assert moment is not None
    for stamp in (moment - 1, moment, moment + 1):
        expected = OPERATORS[operator](stamp, moment)
        constant = f"datetime'{text}'"
        for wanted in (
            f"Timestamp {operator} {constant}",
            f"{constant} {MIRRORED[operator]} Timestamp",
        ):
            assert read(wanted).matches(KEYS, entity(stamp)) is expected
        assert not read(f"Timestamp {operator} '{text}'").matches(KEYS, entity(stamp))


def test_the_timestamp_has_the_epoch_of_etags() -> None:
    """Both add the ticks from year 1 to 1970."""
    assert format_etag(0) == f'"0x{621_355_968_000_000_000:X}"'
    assert read("Timestamp eq datetime'1970-01-01'").matches(KEYS, entity(0))


# Combinations

NAMES = "abc"
assignments = st.fixed_dictionaries({name: st.booleans() for name in NAMES})


@given(
    st.lists(
        st.tuples(
            st.sampled_from([" and ", " or "]), st.integers(0, 3), st.sampled_from(sorted(NAMES))
        ),
        min_size=1,
        max_size=12,
    ),
    assignments,
)
def test_and_binds_tighter_than_or(
    terms: list[tuple[str, int, str]], values: dict[str, bool]
) -> None:
    text = "".join(joint + "not " * nots + name for joint, nots, name in terms)
    text = text.removeprefix(terms[0][0])

    def holds(term: str) -> bool:
        return values[term[-1]] ^ (term.count("not") % 2 == 1)

    expected = any(all(map(holds, part.split(" and "))) for part in text.split(" or "))
    assert read(text).matches(KEYS, flags(**values)) is expected


class Tree(NamedTuple):
    """A condition, in the syntax of filters and as a Python function."""

    text: str
    holds: Callable[[dict[str, bool]], bool]


def _leaf(name: str) -> Tree:
    return Tree(f"{name} eq true", lambda values: values[name])


def _negation(part: Tree) -> Tree:
    return Tree(f"not ({part.text})", lambda values: not part.holds(values))


def _both(parts: tuple[Tree, Tree]) -> Tree:
    left, right = parts
    return Tree(
        f"({left.text}) and ({right.text})",
        lambda values: left.holds(values) and right.holds(values),
    )


def _either(parts: tuple[Tree, Tree]) -> Tree:
    left, right = parts
    return Tree(
        f"({left.text} or {right.text})",
        lambda values: left.holds(values) or right.holds(values),
    )


trees = st.recursive(
    st.sampled_from(NAMES).map(_leaf),
    lambda inner: st.one_of(
        inner.map(_negation),
        st.tuples(inner, inner).map(_both),
        st.tuples(inner, inner).map(_either),
    ),
    max_leaves=20,
)


@given(trees, assignments)
def test_nested_conditions(tree: Tree, values: dict[str, bool]) -> None:
    assert read(tree.text).matches(KEYS, flags(**values)) is tree.holds(values)


def test_maximum_depth() -> None:
    text = "a"
    for level in range(NESTING_MAX):
        text = f"({text}) and a" if level % 2 else f"({text}) or b"
    deepest = read(text)
    assert deepest.matches(KEYS, flags(a=True, b=False))
    assert not deepest.matches(KEYS, flags(a=False, b=True))
    assert deepest.bounds() == KeyBounds()


# Arbitrary input

WORDS = ["p", "RowKey", "(", ")", "'", *OPERATORS, "and", "or", "not", "true", "false", "null"]
WORDS += [sample.text for sample in SAMPLES]


@given(st.lists(st.sampled_from(WORDS)), st.sampled_from(["", " "]))
def test_arbitrary_words_do_not_raise(words: list[str], between: str) -> None:
    wanted = parse_filter(between.join(words))
    if isinstance(wanted, Filter):
        assert not (wanted.matches(KEYS, entity()) and wanted.bounds().is_empty)


# Speed


def test_thousands_of_terms() -> None:
    last = TERMS_MAX - 1
    wanted = read(" or ".join(f"p eq {number}" for number in range(TERMS_MAX)))
    began = time.process_time()
    for _ in range(20):
        assert wanted.matches(KEYS, entity(p=(Edm.INT32, last)))
        assert not wanted.matches(KEYS, entity(p=(Edm.INT32, TERMS_MAX)))
    assert time.process_time() - began < 2


def test_speed_of_a_scan() -> None:
    names = {f"p{number}": (Edm.INT32, number) for number in range(10)}
    # As in a scan: no two entities share their name objects.
    decoder, encoded = msgspec.msgpack.Decoder(Entity), msgspec.msgpack.encode(entity(**names))
    entities = [decoder.decode(encoded) for _ in range(10_000)]
    wanted = read("p9 ge 9")
    began = time.process_time()
    for _ in range(10):
        assert all(wanted.matches(KEYS, each) for each in entities)
    assert time.process_time() - began < 1


# Bounds

ALL = KeyRange()


@pytest.mark.parametrize(
    ("text", "partition", "row"),
    [
        ("", ALL, ALL),
        ("p eq 5", ALL, ALL),
        ("PartitionKey eq 'a'", KeyRange("a", "a\0"), ALL),
        ("PartitionKey ne 'a'", ALL, ALL),
        ("PartitionKey gt 'a'", KeyRange("a\0"), ALL),
        ("PartitionKey ge 'a'", KeyRange("a"), ALL),
        ("PartitionKey lt 'a'", KeyRange("", "a"), ALL),
        ("PartitionKey le 'a'", KeyRange("", "a\0"), ALL),
        ("'a' lt PartitionKey", KeyRange("a\0"), ALL),
        ("RowKey ge 'a' and RowKey lt 'b'", ALL, KeyRange("a", "b")),
        ("PartitionKey eq 'a' and RowKey eq 'b'", KeyRange("a", "a\0"), KeyRange("b", "b\0")),
        ("PartitionKey eq 'a' and p eq 5", KeyRange("a", "a\0"), ALL),
        ("PartitionKey eq 'a' or p eq 5", ALL, ALL),
        ("PartitionKey eq 'a' or RowKey eq 'a'", ALL, ALL),
        ("PartitionKey eq 'a' or PartitionKey eq 'c'", KeyRange("a", "c\0"), ALL),
        ("PartitionKey eq 'a' or PartitionKey ge 'c'", KeyRange("a"), ALL),
        ("PartitionKey eq 'a' or false", KeyRange("a", "a\0"), ALL),
        ("PartitionKey eq 'a' or PartitionKey eq 5", KeyRange("a", "a\0"), ALL),
        (
            "PartitionKey eq 'a' and (RowKey eq '1' or RowKey eq '3')",
            KeyRange("a", "a\0"),
            KeyRange("1", "3\0"),
        ),
        (
            "PartitionKey eq 'a' and RowKey eq '1' or PartitionKey eq 'b' and RowKey eq '2'",
            KeyRange("a", "b\0"),
            KeyRange("1", "2\0"),
        ),
        ("not (PartitionKey eq 'a')", ALL, ALL),
        ("not (PartitionKey ne 'a') and PartitionKey ge 'a'", KeyRange("a"), ALL),
    ],
)
def test_bounds(text: str, partition: KeyRange, row: KeyRange) -> None:
    bounds = read(text).bounds()
    assert bounds == KeyBounds(partition, row)
    assert not bounds.is_empty


@pytest.mark.parametrize(
    "text",
    [
        "false",
        "PartitionKey eq 5",
        "PartitionKey lt ''",
        "PartitionKey eq 'a' and PartitionKey eq 'b'",
        "PartitionKey gt 'a' and PartitionKey le 'a'",
        "PartitionKey eq 'a' and RowKey gt 'b' and RowKey lt 'b'",
        "RowKey gt 'b' and RowKey lt 'a'",
        "PartitionKey eq 'a' and false",
        "false or RowKey eq 5",
    ],
)
def test_contradictions_have_empty_bounds(text: str) -> None:
    bounds = read(text).bounds()
    assert bounds.is_empty
    assert bounds.first == bounds.stop


@pytest.mark.parametrize(
    ("text", "first", "stop"),
    [
        ("", Keys("", ""), None),
        ("PartitionKey ge 'a'", Keys("a", ""), None),
        ("PartitionKey lt 'b'", Keys("", ""), Keys("b", "")),
        ("PartitionKey eq 'a'", Keys("a", ""), Keys("a\0", "")),
        ("PartitionKey eq 'a' and RowKey gt 'r'", Keys("a", "r\0"), Keys("a\0", "")),
        ("PartitionKey eq 'a' and RowKey le 'r'", Keys("a", ""), Keys("a", "r\0")),
        (
            "PartitionKey ge 'a' and PartitionKey lt 'c' and RowKey eq 'r'",
            Keys("a", "r"),
            Keys("c", ""),
        ),
    ],
)
def test_start_and_end_of_a_scan(text: str, first: Keys, stop: Keys | None) -> None:
    bounds = read(text).bounds()
    assert (bounds.first, bounds.stop) == (first, stop)


def test_the_only_text_of_a_range() -> None:
    assert KeyRange("a", "a\0").only == "a"
    assert KeyRange("", "\0").only == ""
    assert KeyRange("a", "b").only is None
    assert KeyRange("a").only is None
    assert KeyRange("a", "a").only is None


texts = st.text("ab\0", max_size=2)
key_terms = st.builds(
    "{} {} '{}'".format,
    st.sampled_from(["PartitionKey", "RowKey"]),
    st.sampled_from([*OPERATORS]),
    texts,
)
other_terms = st.sampled_from(["p", "not p", "true", "false", "PartitionKey eq 5", "RowKey ne 5"])
filters = st.recursive(
    st.one_of(key_terms, key_terms, other_terms),
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=8,
)


def holds(keys: KeyRange, key: str) -> bool:
    return keys.low <= key and (keys.high is None or key < keys.high)


@given(filters, st.lists(st.builds(Keys, texts, texts), min_size=5), st.booleans())
def test_bounds_contain_every_match(text: str, entities: list[Keys], p: bool) -> None:
    wanted = read(text)
    bounds = wanted.bounds()
    for keys in entities:
        if wanted.matches(keys, flags(p=p)):
            assert not bounds.is_empty
            assert holds(bounds.partition, keys.partition)
            assert holds(bounds.row, keys.row)
            assert bounds.first <= keys
            assert bounds.stop is None or keys < bounds.stop


# Conditions without keys

NUMBER_LITERALS = ["0", "5", "5L", "5.0", "-0.0", "2.5", "9007199254740993L"]
property_terms = st.builds(
    "{} {} {}".format,
    st.sampled_from(["p", "q", "Timestamp"]),
    st.sampled_from([*OPERATORS]),
    st.sampled_from([*NUMBER_LITERALS, "'a'", "true", "X'61'", "datetime'2001-01-01T00:00:00Z'"]),
)
values = st.sampled_from(
    [
        (Edm.INT32, 0),
        (Edm.INT32, 5),
        (Edm.INT64, 5),
        (Edm.INT64, 9007199254740993),
        (Edm.DOUBLE, 5.0),
        (Edm.DOUBLE, -0.0),
        (Edm.DOUBLE, 2.5),
        (Edm.STRING, "a"),
        (Edm.BINARY, b"a"),
        (Edm.BOOLEAN, True),
    ]
)
mixed_filters = st.recursive(
    st.one_of(key_terms, property_terms, property_terms),
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=6,
)


@given(mixed_filters, st.builds(Keys, texts, texts), values, values)
def test_no_match_is_skipped(
    text: str, keys: Keys, p: tuple[Edm, Value], q: tuple[Edm, Value]
) -> None:
    wanted, found = read(text), entity(p=p, q=q)
    if not wanted.matches(keys, found):
        return
    assert wanted.may_match(found)


@pytest.mark.parametrize(
    ("text", "depends_on_keys"),
    [
        ("p eq 5 and not (q eq 'a')", False),
        ("PartitionKey eq 'k' and p eq 'a'", True),
        ("not (PartitionKey eq 'k' and p eq 'a')", True),
        ("Timestamp gt datetime'2001-01-01T00:00:00Z'", False),
    ],
)
def test_whether_keys_are_needed(text: str, depends_on_keys: bool) -> None:
    wanted = read(text)
    assert wanted.depends_on_keys is depends_on_keys
    if not depends_on_keys:
        five = entity(p=(Edm.INT32, 5))
        assert wanted.may_match(five) is wanted.matches(KEYS, five)


# $select


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, None),
        ("", None),
        (" , ", None),
        ("*", None),
        ("a, *", None),
        ("a", ("a",)),
        ("b,a", ("b", "a")),
        (" a , b ,a,", ("a", "b")),
        ("A,a", ("A", "a")),
    ],
)
def test_select(text: str | None, names: tuple[str, ...] | None) -> None:
    assert parse_select(text) == names


def test_limit_of_select() -> None:
    names = [f"P{number}" for number in range(SELECTED_MAX)]
    assert parse_select(",".join([*names, *names])) == tuple(names)
    refused = parse_select(",".join([*names, "Another"]))
    assert isinstance(refused, Refusal)
    assert refused.code == "InvalidInput"
    assert parse_select(",".join([*names, "Another", "*"])) is None


def test_long_filters_match_like_short_ones() -> None:
    """Long filters look up properties in another way."""
    texts = ["A eq 1", "B eq 'x'", "not (C eq 1)", "A ge 2 or B lt 'x'", "Absent ne 1"]
    entities = [
        entity(A=(Edm.INT32, 1), B=(Edm.STRING, "x")),
        entity(B=(Edm.INT32, 1), A=(Edm.STRING, "x"), C=(Edm.INT32, 1)),
        entity(),
        entity(A=(Edm.DOUBLE, 2.0)),
    ]
    for text in texts:
        short, long = read(text), read(" and ".join([f"({text})"] * 10))
        assert long.terms == 10 * short.terms
        for one in (*entities, *entities):
            assert long.matches(KEYS, one) == short.matches(KEYS, one), text


def test_nested_filters_are_as_fast_as_flat_ones() -> None:
    levels = 90
    nested = "".join(f"(p{n})and((q{n})or(" for n in range(levels))
    wide = "and".join(f"(r{n})" for n in range(4_500))
    took: list[float] = []
    for _ in range(3):
        began = time.process_time()
        read(f"{nested}{wide}and(RowKey eq 'a'){'))' * levels}")
        took.append(time.process_time() - began)
    # A garbage collection of earlier tests' objects may run in between.
    assert min(took) < 0.3
