"""Names with wildcards, compared with the results of Windows and of Samba's test suite."""

from __future__ import annotations

import time
from random import Random

import pytest

from etagere.protocol.smb.patterns import _DosMatcher, compile_pattern
from etagere.rules.file_names import fold_name

CASES = [
    ("*", ["", "a", "a.b", ".x"], []),
    ("a", ["a", "A"], ["b", "aa"]),
    ("*.*", ["a.b", ".x", "a."], ["a"]),
    ("a*", ["a", "ab", "A.b"], ["ba"]),
    ("*b", ["b", "ab", "bb"], ["ba"]),
    ("a*b*c", ["abc", "aXbYc", "abbcc"], ["ab", "acb", "abcd"]),
    ("?", ["a", "."], ["", "ab"]),
    ("a?c", ["abc", "a.c"], ["ac", "abbc"]),
    ("??*", ["ab", "abc"], ["a"]),
    ("ä*", ["Äpfel", "ä"], ["apfel"]),
    ("[a]*", ["[a]b"], ["ab"]),
    # DOS_STAR: up to the last dot.
    ("<", ["", "abc", "a."], ["a.b"]),
    ("<.c", ["a.c", "a.b.c", ".c"], ["a.b", "c"]),
    ("a<", ["a", "abc", "a."], ["ba"]),
    ('<"*', ["a", "a.b", "a.b.c", ""], []),
    ("<.b", ["a.b", "a.a.b"], ["a.b.a"]),
    # DOS_QM: one character, or nothing at a dot or at the end.
    (">", ["", "a"], ["ab"]),
    ("a>>", ["a", "ab", "abc"], ["abcd", "a.b"]),
    ("a>>.c", ["a.c", "ab.c", "abc.c"], ["abcd.c"]),
    (">>>>>>>>.>>>", ["a.b", "12345678.123", "a."], ["123456789.1", "a.1234"]),
    # DOS_DOT: a dot, or the end.
    ('a"', ["a", "a."], ["ab", "a.b"]),
    ('a"b', ["a.b"], ["a", "ab"]),
    ('*"', ["a", "a.", "a.b"], []),
]


@pytest.mark.parametrize(("pattern", "matching", "others"), CASES)
def test_pattern(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = compile_pattern(pattern)
    assert [name for name in matching if not compiled.matches(fold_name(name))] == []
    assert [name for name in others if compiled.matches(fold_name(name))] == []


@pytest.mark.parametrize(
    ("pattern", "prefix", "is_literal"),
    [("abc", "ABC", True), ("ab*", "AB", False), ("*", "", False), ('a"b', "A", False)],
)
def test_what_names_start_with(pattern: str, prefix: str, is_literal: bool) -> None:
    compiled = compile_pattern(pattern)
    assert (compiled.prefix, compiled.is_literal) == (prefix, is_literal)


def test_both_ways_to_match_agree() -> None:
    random = Random(1)
    for _ in range(5_000):
        pattern = "".join(random.choices('ab.*<>"?', k=random.randint(1, 6)))
        name = "".join(random.choices("ab.", k=random.randint(0, 6)))
        name = fold_name(name)
        found = compile_pattern(pattern).matches(name)
        assert _DosMatcher(fold_name(pattern))(name) is found, (pattern, name)


@pytest.mark.parametrize("pattern", ["<<b", ">" * 254 + "b", "*<" + ">" * 200 + "b"])
@pytest.mark.parametrize("name", ["A" * 254, "." * 254, "A." * 127])
def test_no_regular_expression_takes_long(pattern: str, name: str) -> None:
    began = time.process_time()
    assert not compile_pattern(pattern).matches(name)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("pattern", ["*a" * 120 + "b", "<a" * 120 + "b", "<>" * 120 + "b"])
def test_no_pattern_takes_long(pattern: str) -> None:
    began = time.process_time()
    compiled = compile_pattern(pattern)
    for _ in range(50):
        assert not compiled.matches("A" * 254)
    assert time.process_time() - began < 0.5
