"""Patterns of names with the wildcards of Windows ([MS-FSA] 2.1.4.4).

    *   any characters
    ?   one character
    <   any characters up to the last dot of the name, or to its end (DOS_STAR)
    >   one character, or nothing at a dot or at the end (DOS_QM)
    "   a dot, or nothing at the end (DOS_DOT)

Names and patterns are compared in their folded form.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from etagere.rules.file_names import fold_name

_WILDCARDS: Final = frozenset('*?<>"')
_DOS_WILDCARDS: Final = frozenset('<>"')
_DOS_REGEXES: Final = {
    "*": ".*",
    "?": ".",
    "<": r"(?:[^.]|\.(?=[^.]*\.))*\.?",
    ">": r"(?:[^.]|\.\Z|(?=\.)|\Z)",
    '"': r"(?:\.|\Z)",
}


class NamePattern(NamedTuple):
    """A pattern that names are compared with."""

    matches: Callable[[str], bool]
    """Whether a folded name matches."""
    prefix: str
    """How every name that matches starts, folded."""
    is_literal: bool
    """Whether there is nothing but the prefix."""


def compile_pattern(pattern: str) -> NamePattern:
    folded = fold_name(pattern)
    wild = next((at for at, one in enumerate(folded) if one in _WILDCARDS), None)
    if wild is None:
        return NamePattern(folded.__eq__, folded, is_literal=True)
    prefix = folded[:wild]
    if folded == "*":
        return NamePattern(_match_all, prefix, is_literal=False)
    if _DOS_WILDCARDS.isdisjoint(folded):
        regex = _translate(folded)
    elif _backtracks_little(folded):
        regex = "".join(_DOS_REGEXES.get(one) or re.escape(one) for one in folded)
    else:
        return NamePattern(_DosMatcher(folded), prefix, is_literal=False)
    compiled = re.compile(regex, re.DOTALL)
    return NamePattern(lambda name: compiled.fullmatch(name) is not None, prefix, is_literal=False)


def _backtracks_little(pattern: str) -> bool:
    """Whether a regular expression tries no more combinations than there are pairs of places in a
    name. Each star and each run of `>` multiplies them."""
    return pattern.count("*") + pattern.count("<") + (">" in pattern) <= 2


def _match_all(_name: str) -> bool:
    return True


def _translate(pattern: str) -> str:
    """Returns a regular expression that never backtracks over what a part between two stars has
    matched: the first place where it fits is as good as any other."""
    first, *rest = (
        "".join("." if one == "?" else re.escape(one) for one in part)
        for part in re.sub(r"\*+", "*", pattern).split("*")
    )
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>.*?{part})" for part in middle) + f".*{last}"


class _DosMatcher:
    """Follows all ways to match at once, so that the time is that of a few operations on integers
    for each character of a name.

    Bit n of a set of places stands for the place before character n of the pattern.
    """

    def __init__(self, pattern: str) -> None:
        self._end = 1 << len(pattern)
        self._literals: dict[str, int] = {}
        for place, wanted in enumerate(pattern):
            self._literals[wanted] = self._literals.get(wanted, 0) | 1 << place
        star, dos_star, question, dos_question, dos_dot = (
            self._literals.pop(one, 0) for one in '*<?>"'
        )
        self._star, self._dos_star = star, dos_star
        self._stays = star | dos_star
        # The places that a character passes which is not a dot, a dot, and a dot at the end.
        self._no_dot = question | dos_question
        self._dot = question | dos_dot
        self._last_dot = question | dos_dot | dos_question
        # Those that can be skipped before any character, before a dot, and at the end.
        self._skipped = star | dos_star
        self._skipped_at_dot = self._skipped | dos_question
        self._skipped_at_end = self._skipped_at_dot | dos_dot

    def __call__(self, name: str) -> bool:
        last, last_dot = len(name) - 1, name.rfind(".")
        places = 1
        for at, character in enumerate(name):
            is_dot = character == "."
            places = _skip(places, self._skipped_at_dot if is_dot else self._skipped)
            passed = self._literals.get(character, 0)
            if not is_dot:
                passed |= self._no_dot
            else:
                passed |= self._last_dot if at == last else self._dot
            stays = self._stays
            if at == last_dot:
                stays, passed = self._star, passed | self._dos_star
            places = places & stays | (places & passed) << 1
            if not places:
                return False
        return bool(_skip(places, self._skipped_at_end) & self._end)


def _skip(places: int, skipped: int) -> int:
    """Returns the places, and those behind each run of wildcards that can be skipped: the sum
    carries a bit from within a run to the place behind it."""
    within = places & skipped
    return places | within | (within + skipped ^ skipped)
