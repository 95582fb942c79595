"""Attributes of files and directories."""

from __future__ import annotations

import pytest

from etagere.errors import Refusal
from etagere.rules.file_attributes import (
    FileAttributes,
    attributes_of_new,
    changed_attributes,
    check_writable,
    format_attributes,
    parse_attributes,
)

A = FileAttributes


@pytest.mark.parametrize(
    ("written", "parsed"),
    [
        ("None", A.NONE),
        ("ReadOnly|Hidden", A.READ_ONLY | A.HIDDEN),
        ("archive | TEMPORARY", A.ARCHIVE | A.TEMPORARY),
        (
            "NotContentIndexed|NoScrubData|Offline",
            A.NOT_CONTENT_INDEXED | A.NO_SCRUB_DATA | A.OFFLINE,
        ),
        ("None|System", A.SYSTEM),
    ],
)
def test_parse(written: str, parsed: FileAttributes) -> None:
    assert parse_attributes(written) == parsed


@pytest.mark.parametrize("written", ["", "Compressed", "ReadOnly,Hidden", "ReadOnly|"])
def test_unknown_attributes(written: str) -> None:
    assert parse_attributes(written) is None


def test_attributes_are_listed_in_a_fixed_order() -> None:
    assert format_attributes(A.TEMPORARY | A.ARCHIVE) == "Archive | Temporary"
    assert format_attributes(A.ARCHIVE | A.READ_ONLY) == "ReadOnly | Archive"
    assert format_attributes(A.DIRECTORY | A.READ_ONLY) == "ReadOnly | Directory"
    assert format_attributes(A.NONE) == "None"


@pytest.mark.parametrize(
    ("asked", "is_directory", "expected"),
    [
        (A.NONE, False, A.ARCHIVE),
        (A.READ_ONLY, False, A.READ_ONLY | A.ARCHIVE),
        (A.NONE, True, A.DIRECTORY),
        (A.READ_ONLY | A.DIRECTORY, True, A.READ_ONLY | A.DIRECTORY),
        (A.DIRECTORY, False, None),
        (A.ARCHIVE, True, None),
        (A.TEMPORARY, True, None),
    ],
)
def test_new(asked: FileAttributes, is_directory: bool, expected: FileAttributes | None) -> None:
    found = attributes_of_new(asked, is_directory=is_directory)
    if expected is None:
        assert isinstance(found, Refusal)
        assert found.code == "InvalidHeaderValue"
    else:
        assert found == expected


def test_attributes_are_restored_as_they_were() -> None:
    for asked in (A.NONE, A.READ_ONLY, A.ARCHIVE):
        assert attributes_of_new(asked, is_directory=False, restores=True) == asked
    assert attributes_of_new(A.NONE, is_directory=True, restores=True) == A.DIRECTORY


def test_attributes_of_a_file_can_be_cleared() -> None:
    assert changed_attributes(A.NONE, is_directory=False) == A.NONE
    assert changed_attributes(A.NONE, is_directory=True) == A.DIRECTORY
    assert isinstance(changed_attributes(A.DIRECTORY, is_directory=False), Refusal)


def test_read_only_files_cannot_be_written() -> None:
    assert check_writable(A.ARCHIVE) is None
    refusal = check_writable(A.ARCHIVE | A.READ_ONLY)
    assert refusal is not None
    assert refusal.code == "ReadOnlyAttribute"
