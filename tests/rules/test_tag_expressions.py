"""The language of tag conditions and searches: syntax, errors and meaning."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.rules.tag_expressions import (
    NAMES_MAX,
    TERMS_MAX,
    TEXT_LENGTH_MAX,
    AllOf,
    AnyOf,
    Comparison,
    Malformed,
    Operator,
    Search,
    ValueInterval,
    parse_condition,
    parse_search,
)


def holds(text: str, **tags: str) -> bool:
    condition = parse_condition(text)
    assert not isinstance(condition, Malformed), condition
    return condition.matches(tags)


def reason(found: object) -> str:
    assert isinstance(found, Malformed)
    return found.reason


# Syntax


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("a = '2'", "2", True),
        ("a='2'", "20", False),
        ("a <> '2'", "3", True),
        ("a <> '2'", "2", False),
        ("a > '2'", "10", False),  # as text
        ("a > '2'", "2", False),
        ("a >= '2'", "2", True),
        ("a < '2'", "10", True),
        ("a <= '2'", "2", True),
        ("a < '2'", "2", False),
        ("a = 'X'", "x", False),
        ("a = ''", "", True),
        ("a > 'Z'", "a", True),
        ("\"a\" = '2'", "2", True),
        ("\t( a\n=\r'2' )  ", "2", True),
    ],
)
def test_comparisons(text: str, value: str, expected: bool) -> None:
    assert holds(text, a=value) is expected


@pytest.mark.parametrize("written", ["=", ">", ">=", "<", "<="])
def test_an_absent_tag_equals_nothing(written: str) -> None:
    assert not holds(f"a {written} ''", b="1")


def test_an_absent_tag_differs_from_every_value() -> None:
    assert holds("a <> ''")
    assert not holds("A = '1'", a="1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a='1' AND b='2'", True),
        ("a='1' and b='3'", False),
        ("a='9' Or b='2'", True),
        ("a='1' OR b='9' AND a='9'", True),
        ("(a='1' OR b='9') AND a='9'", False),
        ("((a='9' OR (b='2')) AND ((a='1')))", True),
    ],
)
def test_keywords(text: str, expected: bool) -> None:
    assert holds(text, a="1", b="2") is expected


def test_escaped_quotes() -> None:
    parsed = parse_condition("\"a\"\"b c\" = 'it''s'")
    assert parsed == Comparison('a"b c', Operator.EQ, "it's")
    assert holds("\"and\" = 'or'", **{"and": "or"})


def test_redundant_terms_are_removed() -> None:
    parsed = parse_condition("((a='1' or b='2') or c='3')")
    assert isinstance(parsed, AnyOf)
    assert [part.name for part in parsed.parts if isinstance(part, Comparison)] == ["a", "b", "c"]


# Errors


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a",
        "a =",
        "a = 1",
        "a = b",
        'a = "1"',
        "'a' = '1'",
        "= '1'",
        "a = '1",
        "\"a = '1'",
        "\"\" = '1'",
        "a == '1'",
        "a != '1'",
        "a => '1'",
        "a = '1' b = '2'",
        "a = '1' AND",
        "OR a = '1'",
        "AND a = '1'",
        "and = '1'",
        "NOT a = '1'",
        "a = '1' AND NOT b = '1'",
        "(a = '1'",
        "a = '1')",
        "()",
        "(",
        "a-b = '1'",
        "é = '1'",
        "a = '1';",
        "a = '1' --",
        "@container = 'box'",
        "@other = 'box'",
        "\"@container\" = 'box'",
        "a = '\udc80'",
        "a = '1\udc80",
        f"a = '{'v' * 257}'",
        f"{'n' * 129} = 'v'",
        f"\"{'n' * 129}\" = 'v'",
        "(" * 8_000,
        " AND ".join(["a = '1'"] * (TERMS_MAX + 1)),
        "a = '1'" + " " * TEXT_LENGTH_MAX,
    ],
)
def test_malformed_conditions(text: str) -> None:
    found = parse_condition(text)
    assert reason(found)
    assert isinstance(found, Malformed)
    assert 0 <= found.position <= len(text)


def test_limits() -> None:
    assert isinstance(parse_condition(" AND ".join(["a = '1'"] * TERMS_MAX)), AllOf)
    assert isinstance(parse_condition(f"{'n' * 128} = '{'v' * 256}'"), Comparison)
    text = "a = '1'"
    assert isinstance(parse_condition(text + " " * (TEXT_LENGTH_MAX - len(text))), Comparison)
    nested = "(" * 4_000 + text + ")" * 4_000
    assert isinstance(parse_condition(nested), Comparison)


def test_errors_contain_the_position() -> None:
    assert parse_condition("a = '1' AND b") == Malformed("Expected an operator, not the end.", 13)
    assert parse_condition("a = '1") == Malformed("The quote is not closed.", 4)


@given(st.text("ab@'\"()=<> andorANDOR1é\udc80", max_size=60))
def test_arbitrary_text_does_not_raise(text: str) -> None:
    for parse in (parse_condition, parse_search):
        found: Any = parse(text)
        if not isinstance(found, Malformed):
            assert found.matches({"a": "1"}) in (True, False)


def test_parsing_time_is_bounded() -> None:
    started = time.process_time()
    for text in ("'" * 8_000, '"' * 8_000, "a = '" + "'" * 8_001, "a" * 8_000, "(a='1' or " * 100):
        parse_condition(text)
        parse_search(text)
    assert time.process_time() - started < 1


# Searches


def search(text: str) -> Search:
    found = parse_search(text)
    assert isinstance(found, Search), found
    return found


def test_searches_by_container() -> None:
    found = search("@container = 'box' and a = '1'")
    assert found.containers == {"box"}
    assert dict(found.wanted) == {"a": ValueInterval("1", "1")}
    assert search("@CONTAINER='box' AND a='1'").containers == {"box"}
    assert search("@container='a' AND @container='b' AND t=''").finds_nothing


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a <> '1'", "A search does not know <>."),
        ("a = '1' OR b = '1'", "Expected AND, not 'OR'."),
        ("@container > 'a' AND a = '1'", "@container can only be compared by =."),
        ("@container = 'a'", "At least one tag has to be asked for."),
        ("@box = 'a' AND a = '1'", "Unsupported parameter '@box'."),
        (
            " AND ".join(f"t{n}='1'" for n in range(NAMES_MAX + 1)),
            "More than 10 tags are asked for.",
        ),
    ],
)
def test_malformed_searches(text: str, expected: str) -> None:
    assert reason(parse_search(text)) == expected


def test_contradictions_find_nothing() -> None:
    assert search("a > '1' AND a < '1'").finds_nothing
    assert search("a >= '1' AND a < '1'").finds_nothing
    assert search("a = '1' AND a = '2'").finds_nothing
    assert search("a = '1' AND a > '1'").finds_nothing
    assert search("a < ''").finds_nothing
    assert not search("a >= '1' AND a <= '1'").finds_nothing
    assert not search("a > '1' AND a < '2'").finds_nothing


COMPARE: dict[str, Callable[[str, str], bool]] = {
    "=": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
short = st.text("ab", max_size=2)


@given(st.lists(st.tuples(st.sampled_from(sorted(COMPARE)), short), min_size=1, max_size=5), short)
def test_comparisons_are_intersected(terms: list[tuple[str, str]], value: str) -> None:
    found = search(" AND ".join(f"t {written} '{constant}'" for written, constant in terms))
    expected = all(COMPARE[written](value, constant) for written, constant in terms)
    assert found.matches({"t": value}) is expected
    assert not found.matches({})
    ((_, values),) = found.wanted
    if expected:
        assert not values.is_empty
    if values.is_point:
        assert expected == (value == values.first)
