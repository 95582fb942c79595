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
        return NamePattern(lambda name: _matches_dos(folded, name), prefix, is_literal=False)
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


def _matches_dos(pattern: str, name: str) -> bool:
    """Follows all ways to match at once, so that the time is bounded by the product of the
    lengths."""
    last_dot, end = name.rfind("."), len(name)
    places = _skip(pattern, {0}, name[:1])
    for at, character in enumerate(name):
        is_last_dot, is_last = at == last_dot, at == end - 1
        steps = (_step(pattern, one, character, is_last_dot, is_last) for one in places)
        places = {place for place in steps if place is not None}
        places = _skip(pattern, places, name[at + 1 : at + 2])
        if not places:
            return False
    return len(pattern) in places


def _step(pattern: str, place: int, character: str, is_last_dot: bool, is_last: bool) -> int | None:
    """Returns the place in the pattern after a character; None: it does not match there."""
    if place == len(pattern):
        return None
    wanted = pattern[place]
    if wanted == "*":
        return place
    if wanted == "<":
        return place + 1 if is_last_dot else place
    if wanted == ">":
        return place + 1 if character != "." or is_last else None
    if wanted == '"':
        return place + 1 if character == "." else None
    return place + 1 if wanted in ("?", character) else None


def _skip(pattern: str, places: set[int], following: str) -> set[int]:
    """Returns the places, and those behind wildcards that match nothing before this character,
    which is empty at the end of the name."""
    found = set(places)
    pending = list(places)
    while pending:
        place = pending.pop()
        if place == len(pattern):
            continue
        wanted = pattern[place]
        passes = wanted in "*<"
        passes |= wanted == ">" and following in ("", ".")
        passes |= wanted == '"' and not following
        if passes and place + 1 not in found:
            found.add(place + 1)
            pending.append(place + 1)
    return found
