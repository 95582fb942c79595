"""The rules of tags, compared with independently stated facts."""

from __future__ import annotations

import string
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.errors import Refusal
from etagere.model.blobs import Tags
from etagere.rules.tag_expressions import Search
from etagere.rules.tags import (
    check_condition,
    check_expression,
    check_tags,
    parse_header,
    parse_where,
)

PERMITTED = string.ascii_letters + string.digits + " +-./:=_"
UNPERMITTED = Refusal("InvalidXmlNodeValue")

names = st.text(PERMITTED, min_size=1, max_size=128)
values = st.text(PERMITTED, max_size=256)


def code(found: Tags | Search | Refusal | None) -> str:
    return found.code if isinstance(found, Refusal) else ""


@given(st.dictionaries(names, values, min_size=1, max_size=10))
def test_permitted_tags_are_sorted(tags: dict[str, str]) -> None:
    kept = tuple(sorted(tags.items()))
    assert check_tags(reversed(kept), UNPERMITTED) == kept
    for encode in (lambda text: quote(text, safe=""), quote_plus, quote):
        written = "&".join(f"{encode(name)}={encode(value)}" for name, value in tags.items())
        assert parse_header(written) == kept


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([("", "value")], "EmptyTagName"),
        ([("a", "1"), ("a", "1")], "DuplicateTagNames"),
        ([("a", "1"), ("A", "1")], ""),
        ([(f"t{n}", "") for n in range(10)], ""),
        ([(f"t{n}", "") for n in range(11)], "TagsTooLarge"),
        ([*((f"t{n}", "") for n in range(10)), ("t3", "")], "DuplicateTagNames"),
        ([("n" * 128, "v" * 256)], ""),
        ([("n" * 129, "")], "TagsTooLarge"),
        ([("n", "v" * 257)], "TagsTooLarge"),
        ([("a*", "")], "InvalidXmlNodeValue"),
        ([("a", "b'c")], "InvalidXmlNodeValue"),
        ([("a", "b\n")], "InvalidXmlNodeValue"),
        ([("ä", "")], "InvalidXmlNodeValue"),
        ([("a", "٣")], "InvalidXmlNodeValue"),
        ([("a", "\udc80")], "InvalidXmlNodeValue"),
    ],
)
def test_limits_of_a_blob(pairs: list[tuple[str, str]], expected: str) -> None:
    assert code(check_tags(pairs, UNPERMITTED)) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("a=1&b=2", (("a", "1"), ("b", "2"))),
        ("b=&a=x+y%20z", (("a", "x y z"), ("b", ""))),
        ("a=1=2", (("a", "1=2"),)),
        ("a%3Db=%2B", (("a=b", "+"),)),
        ("a", "InvalidHeaderValue"),
        ("a=1&", "EmptyTagName"),
        ("=1", "EmptyTagName"),
        ("a=%", "InvalidHeaderValue"),
        ("a=%zz", "InvalidHeaderValue"),
        ("a=%C3%A9", "InvalidHeaderValue"),
        ("a=\udc80", "InvalidHeaderValue"),
        ("a=1&a=2", "DuplicateTagNames"),
        ("a=" + "v" * 257, "TagsTooLarge"),
        ("&" * 20_000, "TagsTooLarge"),
    ],
)
def test_the_header(written: str, expected: Tags | str) -> None:
    found = parse_header(written)
    assert (code(found) or found) == expected


TAGS: Tags = (("a", "1"), ("b c", "x"))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, ""),
        ("a = '1'", ""),
        ("a = '2'", "ConditionNotMet"),
        ("\"b c\" <> 'x' OR a > '0'", ""),
        ("a = 1", "InvalidHeaderValue"),
    ],
)
def test_a_condition(asked: str | None, expected: str) -> None:
    assert code(check_condition(asked, TAGS)) == expected


def test_refusals_name_the_tag() -> None:
    refusal = check_expression("a = '1' und b = '2'")
    assert refusal is not None
    assert refusal.facts["HeaderName"] == "x-ms-if-tags"
    assert refusal.facts["Reason"] == "Expected AND or OR, not 'und'."
    assert refusal.facts["Position"] == 8
    assert check_expression("a = '1'") is None


def test_refused_searches_name_the_parameter() -> None:
    refusal = parse_where("a <> '1'")
    assert isinstance(refusal, Refusal)
    assert refusal.code == "InvalidQueryParameterValue"
    assert refusal.facts["QueryParameterName"] == "where"
    assert isinstance(parse_where("a = '1'"), Search)
