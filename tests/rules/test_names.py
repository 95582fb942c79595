"""Names of containers, blobs and metadata, at and beyond their limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.rules.names import check_blob_name, check_container_name, check_metadata

INVALID = "InvalidResourceName"
RANGE = "OutOfRangeInput"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("abc", None),
        ("a-b", None),
        ("0-9", None),
        ("123", None),
        ("a" * 63, None),
        ("a-b-c-d", None),
        ("$root", None),
        ("$web", None),
        ("$logs", None),
        ("", RANGE),
        ("ab", RANGE),
        ("a" * 64, RANGE),
        ("-ab", INVALID),
        ("ab-", INVALID),
        ("a--b", INVALID),
        ("Abc", INVALID),
        ("a_b", INVALID),
        ("a.b", INVALID),
        ("a/b", INVALID),
        ("äöü", INVALID),
        ("٣٣٣", INVALID),
        ("abc\n", INVALID),
        ("$other", INVALID),
        ("$ROOT", INVALID),
    ],
)
def test_container_names(name: str, expected: str | None) -> None:
    refusal = check_container_name(name)
    assert (refusal.code if refusal else None) == expected


@given(st.text(alphabet="ab09-", max_size=70))
def test_container_names_match_the_documented_pattern(name: str) -> None:
    good = (
        3 <= len(name) <= 63
        and "--" not in name
        and not name.startswith("-")
        and not name.endswith("-")
    )
    assert (check_container_name(name) is None) is good


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a", None),
        ("a b?c#d%e", None),
        ("dir/file.txt", None),
        ("/", None),
        ("ends.", None),
        ("\x01", None),
        ("a" * 1024, None),
        ("é" * 1024, None),
        ("😊" * 512, None),
        ("/".join(["s"] * 254), None),
        ("", RANGE),
        ("a" * 1025, RANGE),
        ("é" * 1025, RANGE),
        ("😊" * 513, RANGE),
        ("/".join(["s"] * 255), RANGE),
        ("\ud83d", INVALID),
    ],
)
def test_blob_names(name: str, expected: str | None) -> None:
    refusal = check_blob_name(name)
    assert (refusal.code if refusal else None) == expected


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], None),
        ([("name", "value")], None),
        ([("_name1", "")], None),
        ([("a", "1"), ("b", "2")], None),
        ([("a", "tab\tand space")], None),
        ([("a" * 4096, "b" * 4096)], None),
        ([("a", "x" * 4095), ("b", "x" * 4095)], None),
        ([("", "value")], "EmptyMetadataKey"),
        ([("1name", "value")], "InvalidMetadata"),
        ([("na-me", "value")], "InvalidMetadata"),
        ([("na.me", "value")], "InvalidMetadata"),
        ([("näme", "value")], "InvalidMetadata"),
        ([("name\n", "value")], "InvalidMetadata"),
        ([("name", "välue")], "InvalidMetadata"),
        ([("name", "line\nline")], "InvalidMetadata"),
        ([("name", "\x00")], "InvalidMetadata"),
        ([("name", "1"), ("Name", "2")], "InvalidMetadata"),
        ([("a" * 4096, "b" * 4097)], "MetadataTooLarge"),
        ([("a", "x" * 4096), ("b", "x" * 4095)], "MetadataTooLarge"),
    ],
)
def test_metadata(pairs: list[tuple[str, str]], expected: str | None) -> None:
    refusal = check_metadata(pairs)
    assert (refusal.code if refusal else None) == expected
