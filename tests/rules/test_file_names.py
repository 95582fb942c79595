"""Names of shares, directories and files."""

from __future__ import annotations

import pytest

from etagere.rules.file_names import (
    check_component,
    check_path,
    check_share_name,
    fold_name,
    split_path,
)


@pytest.mark.parametrize("name", ["abc", "a-b-c", "0" * 63])
def test_share_names(name: str) -> None:
    assert check_share_name(name) is None


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ab", "OutOfRangeInput"),
        ("a" * 64, "OutOfRangeInput"),
        ("Abc", "InvalidResourceName"),
        ("a--b", "InvalidResourceName"),
        ("-ab", "InvalidResourceName"),
        ("ab-", "InvalidResourceName"),
        ("$root", "InvalidResourceName"),
    ],
)
def test_refused_share_names(name: str, code: str) -> None:
    refusal = check_share_name(name)
    assert refusal is not None
    assert refusal.code == code


@pytest.mark.parametrize(
    "name",
    ["a", "a b", "a.", ".a", "a\uffff", "\N{GRINNING FACE}", "com", "com10", "con.txt", "x" * 255],
)
def test_components(name: str) -> None:
    assert check_component(name) is None


@pytest.mark.parametrize(
    "name",
    [".", "..", "...", "con", "CON", "Lpt1", "COM9", "nul", "prn", "aux", "clock$"]
    + [f"a{illegal}b" for illegal in '"\\/:|<>*?\x00\x1f\x7f\ud800\udfff'],
)
def test_illegal_components(name: str) -> None:
    refusal = check_component(name)
    assert refusal is not None
    assert refusal.code == "InvalidResourceName"


@pytest.mark.parametrize("name", ["", "x" * 256, "\N{GRINNING FACE}" * 128])
def test_components_of_illegal_length(name: str) -> None:
    refusal = check_component(name)
    assert refusal is not None
    assert refusal.code == "OutOfRangeInput"


def test_paths() -> None:
    assert split_path("", allow_trailing_dot=True) == ()
    assert split_path("a/b", allow_trailing_dot=True) == ("a", "b")
    assert split_path("a/b/", allow_trailing_dot=True) == ("a", "b")
    assert split_path("a./b..", allow_trailing_dot=True) == ("a.", "b..")
    assert split_path("a./b..", allow_trailing_dot=False) == ("a", "b")
    assert split_path("a/..", allow_trailing_dot=False) == ("a", "..")


def test_limits_of_paths() -> None:
    assert check_path(("x",) * 250) is None
    assert check_path(("x" * 255,) * 8) is None  # 2,047 with the separators
    for path in (("x",) * 251, ("x" * 255,) * 8 + ("y",)):
        refusal = check_path(path)
        assert refusal is not None
        assert refusal.code == "InvalidFileOrDirectoryPathName"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("readme", "README"),
        ("caf\N{LATIN SMALL LETTER E WITH ACUTE}", "CAF\N{LATIN CAPITAL LETTER E WITH ACUTE}"),
        ("\N{LATIN SMALL LETTER Y WITH DIAERESIS}", "\N{LATIN CAPITAL LETTER Y WITH DIAERESIS}"),
        ("\N{CYRILLIC SMALL LETTER ZHE}", "\N{CYRILLIC CAPITAL LETTER ZHE}"),
    ],
)
def test_names_that_differ_in_case_only_are_the_same(one: str, other: str) -> None:
    assert fold_name(one) == fold_name(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("stra\N{LATIN SMALL LETTER SHARP S}e", "STRASSE"),
        ("\N{LATIN SMALL LETTER DOTLESS I}", "I"),
        ("\N{LATIN SMALL LETTER LONG S}", "S"),
        ("\N{KELVIN SIGN}", "k"),
        ("\N{DESERET SMALL LETTER LONG I}", "\N{DESERET CAPITAL LETTER LONG I}"),
        ("e\N{COMBINING ACUTE ACCENT}", "\N{LATIN SMALL LETTER E WITH ACUTE}"),
    ],
)
def test_names_that_windows_keeps_apart(one: str, other: str) -> None:
    assert fold_name(one) != fold_name(other)
