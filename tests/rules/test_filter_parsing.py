"""The language of filters: literals, precedence, limits and errors."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from math import inf, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.errors import Refusal
from etagere.model.tables import Edm, Value
from etagere.rules.filter_literals import Literal, parse_datetime
from etagere.rules.filter_parsing import (
    ALWAYS,
    NESTING_MAX,
    NEVER,
    TERMS_MAX,
    TEXT_BYTES_MAX,
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    Not,
    Operator,
    parse_condition,
)

GUID = "00112233-4455-6677-8899-AABBccddeeff"
TICKS_2024 = 638_396_640_000_000_000
"""At 2024-01-01."""
HOUR = 36_000_000_000


def is_true(name: str) -> Comparison:
    return Comparison(name, Operator.EQ, Literal(Edm.BOOLEAN, True))


A, B, C, D = map(is_true, "abcd")


def literal_of(text: str) -> Literal:
    condition = parse_condition(f"p eq {text}")
    assert isinstance(condition, Comparison), condition
    return condition.literal


def refusal_of(text: str) -> Refusal:
    refusal = parse_condition(text)
    assert isinstance(refusal, Refusal), refusal
    assert refusal.error.status == 400
    assert set(refusal.facts) == {"Reason", "Position"}
    return refusal


# Literals


@pytest.mark.parametrize(
    ("text", "edm", "value"),
    [
        ("''", Edm.STRING, ""),
        ("'a b'", Edm.STRING, "a b"),
        ("'it''s'", Edm.STRING, "it's"),
        ("''''", Edm.STRING, "'"),
        ("' or '''", Edm.STRING, " or '"),
        ("'é😀'", Edm.STRING, "é😀"),
        ("0", Edm.INT32, 0),
        ("-1", Edm.INT32, -1),
        ("007", Edm.INT32, 7),
        ("2147483647", Edm.INT32, 2**31 - 1),
        ("-2147483648", Edm.INT32, -(2**31)),
        ("2147483648", Edm.INT64, 2**31),
        ("-2147483649", Edm.INT64, -(2**31) - 1),
        ("9223372036854775807", Edm.INT64, 2**63 - 1),
        ("9223372036854775808", Edm.DOUBLE, 2.0**63),
        ("1" + "0" * 300, Edm.DOUBLE, 1e300),
        ("123L", Edm.INT64, 123),
        ("-123l", Edm.INT64, -123),
        ("-9223372036854775808L", Edm.INT64, -(2**63)),
        ("12.5", Edm.DOUBLE, 12.5),
        ("-12.5", Edm.DOUBLE, -12.5),
        (".5", Edm.DOUBLE, 0.5),
        ("5.", Edm.DOUBLE, 5.0),
        ("1e3", Edm.DOUBLE, 1000.0),
        ("1E+3", Edm.DOUBLE, 1000.0),
        ("2.5e-3", Edm.DOUBLE, 0.0025),
        ("12.5d", Edm.DOUBLE, 12.5),
        ("12D", Edm.DOUBLE, 12.0),
        ("INF", Edm.DOUBLE, inf),
        ("-INF", Edm.DOUBLE, -inf),
        ("true", Edm.BOOLEAN, True),
        ("false", Edm.BOOLEAN, False),
        ("datetime'0001-01-01T00:00:00Z'", Edm.DATETIME, 0),
        ("datetime'2024-01-01'", Edm.DATETIME, TICKS_2024),
        ("datetime'2024-01-01T00:00'", Edm.DATETIME, TICKS_2024),
        ("datetime'2024-01-01T00:00:00'", Edm.DATETIME, TICKS_2024),
        ("datetime'2024-01-01T01:00:00Z'", Edm.DATETIME, TICKS_2024 + HOUR),
        ("datetime'2024-01-01T00:00:00.1Z'", Edm.DATETIME, TICKS_2024 + 1_000_000),
        ("datetime'2024-01-01T00:00:00.1234567Z'", Edm.DATETIME, TICKS_2024 + 1_234_567),
        ("datetime'2024-01-01T00:00:00.123456789Z'", Edm.DATETIME, TICKS_2024 + 1_234_567),
        ("datetime'2024-01-01T00:00:00+01:00'", Edm.DATETIME, TICKS_2024 - HOUR),
        ("datetime'2024-01-01T00:00:00-01:30'", Edm.DATETIME, TICKS_2024 + HOUR * 3 // 2),
        ("DateTime'2024-01-01T00:00:00Z'", Edm.DATETIME, TICKS_2024),
        (f"guid'{GUID}'", Edm.GUID, bytes.fromhex("00112233445566778899aabbccddeeff")),
        (f"Guid'{GUID.upper()}'", Edm.GUID, bytes.fromhex("00112233445566778899aabbccddeeff")),
        ("X'0aFF'", Edm.BINARY, b"\x0a\xff"),
        ("x'0aff'", Edm.BINARY, b"\x0a\xff"),
        ("X''", Edm.BINARY, b""),
        ("binary'0aff'", Edm.BINARY, b"\x0a\xff"),
    ],
)
def test_literals(text: str, edm: Edm, value: Value) -> None:
    literal = literal_of(text)
    assert (literal.type, literal.value) == (edm, value)
    assert type(literal.value) is type(value)


def test_nan_is_a_double() -> None:
    literal = literal_of("NaN")
    assert literal.type is Edm.DOUBLE
    assert isinstance(literal.value, float)
    assert isnan(literal.value)


@pytest.mark.parametrize(
    "text",
    [
        "'",
        "'a",
        "'it's'",
        "X'0'",
        "X'0g'",
        "X'0a ff'",
        "X '0a'",
        "binary'+1'",
        "nonsense'0a'",
        "guid''",
        "guid'0011223344556677-8899-aabb-ccdd-eeff'",
        "guid'g0112233-4455-6677-8899-aabbccddeeff'",
        "datetime''",
        "datetime'today'",
        "datetime'2024-02-30'",
        "datetime'2024-13-01'",
        "datetime'0000-01-01'",
        "datetime'2024-01-01T24:00:00Z'",
        "datetime'2024-01-01T00:60:00Z'",
        "datetime'2024-01-01T00:00:60Z'",
        "datetime'2024-01-01T00:00:00.Z'",
        "datetime'2024-01-01T00:00:00+24:00'",
        "datetime'2024-01-01T00:00:00+0100'",
        "datetime'٢٠٢٤-01-01'",
        "9223372036854775808L",
        "1.5L",
        "1e3L",
        "1e999",
        "1" * 10_000,
        "12x",
        "12.5.1",
        "1_000",
        "--1",
        "- 1",
        "+INF",
        "-NaN",
        "٣",
        "0x10",
        "null",
    ],
)
def test_invalid_literals_are_refused(text: str) -> None:
    refusal_of(f"p eq {text}")


@given(st.text())
def test_any_text_can_be_quoted(text: str) -> None:
    assert literal_of("'" + text.replace("'", "''") + "'") == Literal(Edm.STRING, text)


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_integer_can_be_written(value: int) -> None:
    assert literal_of(str(value)).value == value
    assert literal_of(f"{value}L") == Literal(Edm.INT64, value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_double_can_be_written(value: float) -> None:
    assert literal_of(repr(value)) == Literal(Edm.DOUBLE, value)


@given(
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),
    st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
def test_datetimes_match_the_standard_library(moment: datetime, zone: timezone) -> None:
    since = moment.replace(tzinfo=zone) - datetime(1, 1, 1, tzinfo=UTC)
    ticks = since // timedelta(microseconds=1) * 10
    assert parse_datetime(moment.replace(tzinfo=zone).isoformat()) == ticks


# Comparisons


@pytest.mark.parametrize("operator", Operator)
def test_either_side_may_be_the_constant(operator: Operator) -> None:
    mirrored = {"gt": "lt", "lt": "gt", "ge": "le", "le": "ge"}.get(operator.value, operator.value)
    expected = Comparison("p", operator, Literal(Edm.INT32, 5))
    assert parse_condition(f"p {operator.value} 5") == expected
    assert parse_condition(f"5 {mirrored} p") == expected


@pytest.mark.parametrize("text", [" p eq 5", "p  eq\t5\r\n", "p\u00a0eq 5", "( p eq 5 )"])
def test_whitespace(text: str) -> None:
    assert parse_condition(text) == parse_condition("p eq 5")


def test_parentheses_need_no_spaces() -> None:
    assert parse_condition("(a)and(b)or not(c)") == parse_condition("a and b or not c")


@pytest.mark.parametrize("name", ["_", "été", "p1", "名前", "हिन्दी", "eq", "or", "X", "Not"])
def test_names(name: str) -> None:
    condition = parse_condition(f"{name} eq 5")
    assert condition == Comparison(name, Operator.EQ, Literal(Edm.INT32, 5))


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("p eq", 4),
        ("p eq 5 and", 10),
        ("p eq 5 or ", 10),
        ("not", 3),
        ("p q", 2),
        ("p EQ 5", 2),
        ("p eq 5 AND q eq 6", 7),
        ("p == 5", 2),
        ("p eq q", 0),
        ("5 eq 5", 0),
        ("5eq p", 0),
        ("p eq(5)", 4),
        ("(p)eq 5", 3),
        ("5", 1),
        ("'text'", 6),
        ("a and and", 6),
        ("a and or b", 6),
        ("eq 5", 0),
        ("(a", 0),
        ("a and (b or (c)", 6),
        ("a)", 1),
        ("()", 1),
        ("a and ()", 7),
        ("a (b)", 2),
        ("a/b eq 5", 1),
        ("my-name eq 5", 2),
        ("startswith(p, 'a')", 10),
        ("p add 1 eq 5", 2),
        ("(a eq 5) eq true", 9),
        ("p eq 'open", 5),
        ("p eq 5;", 6),
        ("\0", 0),
        ("p eq '\ud800'", 6),
    ],
)
def test_errors_contain_the_position(text: str, position: int) -> None:
    assert refusal_of(text).facts["Position"] == position


def test_errors_quote_only_part_of_the_filter() -> None:
    assert len(str(refusal_of("a " + "b" * 10_000).facts["Reason"])) < 100


# Conditions


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("", ALWAYS),
        (" \t\n", ALWAYS),
        ("true", ALWAYS),
        ("false", NEVER),
        ("a", A),
        ("((a))", A),
        ("not a", Not(A, 1)),
        ("not not a", A),
        ("not (not a)", A),
        ("not a eq true", Not(A, 1)),
        ("a and b", AllOf((A, B), 1)),
        ("a or b", AnyOf((A, B), 1)),
        ("a or b and c", AnyOf((A, AllOf((B, C), 1)), 2)),
        ("a and b or c", AnyOf((AllOf((A, B), 1), C), 2)),
        ("(a or b) and c", AllOf((AnyOf((A, B), 1), C), 2)),
        ("a and (b or c)", AllOf((A, AnyOf((B, C), 1)), 2)),
        ("not a and b", AllOf((Not(A, 1), B), 2)),
        ("not (a and b)", Not(AllOf((A, B), 1), 2)),
        ("not a or not b", AnyOf((Not(A, 1), Not(B, 1)), 2)),
        ("((a or b) or c) or d", AnyOf((A, B, C, D), 1)),
        ("a and (b and (c and d))", AllOf((A, B, C, D), 1)),
        ("a or (b and (c or d))", AnyOf((A, AllOf((B, AnyOf((C, D), 1)), 2)), 3)),
        ("true and true", ALWAYS),
        ("true and a", AllOf((A,), 1)),
    ],
)
def test_precedence(text: str, condition: Condition) -> None:
    assert parse_condition(text) == condition


# Limits


def test_maximum_number_of_terms() -> None:
    text = " or ".join(["a eq 1"] * TERMS_MAX)
    began = time.process_time()
    condition = parse_condition(text)
    assert time.process_time() - began < 2
    assert isinstance(condition, AnyOf)
    assert len(condition.parts) == TERMS_MAX
    assert "5000" in str(refusal_of(text + " or a").facts["Reason"])


def test_long_chains_are_not_deep() -> None:
    added = TERMS_MAX - 1
    began = time.process_time()
    condition = parse_condition("(" * added + "a" + " or b)" * added)
    assert time.process_time() - began < 2
    assert condition == AnyOf((A, *[B] * added), 1)


def test_redundant_parentheses_are_not_deep() -> None:
    assert parse_condition("(" * 30_000 + "a" + ")" * 30_000) == A
    assert parse_condition("not (" * 10_000 + "a" + ")" * 10_000) == A


def nested(depth: int) -> str:
    """Returns `depth` alternating levels around a term."""
    text = "a"
    for level in range(depth):
        text = f"({text}) and a" if level % 2 else f"({text}) or a"
    return text


def test_maximum_depth() -> None:
    condition = parse_condition(nested(NESTING_MAX))
    assert not isinstance(condition, Refusal)
    assert condition.depth == NESTING_MAX
    refusal_of(nested(NESTING_MAX + 1))
    refusal_of(nested(3_000))
    refusal_of("not (a and " * 3_000 + "a" + ")" * 3_000)
    refusal_of("(" * TEXT_BYTES_MAX)


def test_maximum_length() -> None:
    text = "a eq '" + "é" * ((TEXT_BYTES_MAX - 8) // 2)
    assert isinstance(parse_condition(text + "x'"), Comparison)
    refusal_of(text + "xx'")


# Arbitrary input


@given(st.text(st.characters()))
def test_arbitrary_text_does_not_raise(text: str) -> None:
    """Not even with lone surrogates."""
    parse_condition(text)
    parse_condition(f"p eq {text}")
