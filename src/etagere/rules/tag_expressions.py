"""The language of conditions on tags, in `x-ms-if-tags` and in the `where` of a search.

    condition    conjunction ("or" conjunction)*
    conjunction  term ("and" term)*
    term         "(" condition ")" | comparison
    comparison   name operator 'value'
    operator     = | <> | > | >= | < | <=
    name         letters, digits and _ | "anything else"

Quotes are escaped by doubling them. Keywords may have any case; names and values are
case-sensitive. A search supports neither "or" nor <>, which an index cannot answer, but supports
`@container = 'name'`. A blob without a tag meets no condition on it except <>.

The parser does not recurse, and flattens its result.
"""

from __future__ import annotations

import enum
import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

TEXT_LENGTH_MAX: Final = 8 * 1024
TERMS_MAX: Final = 100
NAMES_MAX: Final = 10
"""The maximum number of different tags in a search: no blob has more."""
NAME_LENGTH_MAX: Final = 128
VALUE_LENGTH_MAX: Final = 256

PERMITTED: Final = re.compile(r"[A-Za-z0-9 +\-./:=_]*")
"""The characters of tag names and values."""

CONTAINER: Final = "@container"


class Operator(enum.Enum):
    EQ = "="
    NE = "<>"
    GT = ">"
    GE = ">="
    LT = "<"
    LE = "<="


_COMPARE: Final[dict[Operator, Callable[[str, str], bool]]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
}
_OPERATORS: Final = {known.value: known for known in Operator}


class Malformed(msgspec.Struct, frozen=True):
    """Why and where a text is malformed. The position counts characters from 0."""

    reason: str
    position: int


# Conditions


class Comparison(msgspec.Struct, frozen=True):
    """A comparison of a tag with a constant."""

    name: str
    operator: Operator
    value: str

    def matches(self, tags: Mapping[str, str]) -> bool:
        found = tags.get(self.name)
        if found is None:
            return self.operator is Operator.NE
        return _COMPARE[self.operator](found, self.value)


class AllOf(msgspec.Struct, frozen=True):
    parts: tuple[Condition, ...]

    def matches(self, tags: Mapping[str, str]) -> bool:
        return all(part.matches(tags) for part in self.parts)


class AnyOf(msgspec.Struct, frozen=True):
    parts: tuple[Condition, ...]

    def matches(self, tags: Mapping[str, str]) -> bool:
        return any(part.matches(tags) for part in self.parts)


Condition: TypeAlias = Comparison | AllOf | AnyOf


def _joined(kind: type[AllOf] | type[AnyOf], conditions: list[Condition]) -> Condition:
    if len(conditions) == 1:
        return conditions[0]
    parts: list[Condition] = []
    for condition in conditions:
        parts.extend(condition.parts if isinstance(condition, kind) else (condition,))
    return kind(tuple(parts))


class ValueInterval(msgspec.Struct, frozen=True):
    """The values that satisfy all comparisons with one tag, from the first to the last; either end
    may be excluded. Without a last one it has no upper end."""

    first: str = ""
    last: str | None = None
    with_first: bool = True
    with_last: bool = True

    @property
    def is_point(self) -> bool:
        return self.first == self.last and self.with_first and self.with_last

    @property
    def is_empty(self) -> bool:
        if self.last is None or self.first < self.last:
            return False
        return not self.is_point

    def holds(self, value: str) -> bool:
        if value < self.first or (value == self.first and not self.with_first):
            return False
        if self.last is None or value < self.last:
            return True
        return value == self.last and self.with_last

    def narrowed(self, asked: Operator, value: str) -> ValueInterval:
        first, last = self.first, self.last
        with_first, with_last = self.with_first, self.with_last
        if asked in (Operator.EQ, Operator.GT, Operator.GE):
            closed = asked is not Operator.GT
            if value > first or (value == first and not closed):
                first, with_first = value, closed
        if asked in (Operator.EQ, Operator.LT, Operator.LE):
            closed = asked is not Operator.LT
            if last is None or value < last or (value == last and not closed):
                last, with_last = value, closed
        return ValueInterval(first, last, with_first, with_last)


class Search(msgspec.Struct, frozen=True):
    """A search for blobs that have all of these tags, with values within the intervals."""

    written: str
    wanted: tuple[tuple[str, ValueInterval], ...]
    containers: frozenset[str] = frozenset()
    """The required containers; empty: any container."""

    @property
    def finds_nothing(self) -> bool:
        return len(self.containers) > 1 or any(values.is_empty for _, values in self.wanted)

    def matches(self, tags: Mapping[str, str]) -> bool:
        for name, values in self.wanted:
            found = tags.get(name)
            if found is None or not values.holds(found):
                return False
        return True


# Parsing

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<open> \( )
      | (?P<close> \) )
      | (?P<operator> <> | >= | <= | = | > | < )
      | (?P<value> ' [^']*+ (?: '' [^']*+ )*+ ' )
      | (?P<name> " [^"]*+ (?: "" [^"]*+ )*+ " )
      | (?P<word> @? [A-Za-z0-9_]++ )
      | (?P<end> \Z )
      | (?P<other> . )
    )""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
"""Matches at every position."""

_RESERVED: Final = frozenset({"and", "or", "not"})
_QUOTED_MAX = 40
"""The most characters of an unexpected token that a refusal repeats."""


class _MalformedError(Exception):
    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.malformed = Malformed(reason, position)


@lru_cache(maxsize=256)
def parse_condition(text: str) -> Condition | Malformed:
    """Parses `x-ms-if-tags`."""
    return _parse(text, searches=False)


@lru_cache(maxsize=256)
def parse_search(text: str) -> Search | Malformed:
    """Parses `where`."""
    condition = _parse(text, searches=True)
    if isinstance(condition, Malformed):
        return condition
    parts = condition.parts if isinstance(condition, AllOf) else (condition,)
    wanted: dict[str, ValueInterval] = {}
    containers: set[str] = set()
    for part in parts:
        assert isinstance(part, Comparison)
        if part.name == CONTAINER:
            containers.add(part.value)
        else:
            so_far = wanted.get(part.name, ValueInterval())
            wanted[part.name] = so_far.narrowed(part.operator, part.value)
    if not wanted:
        return Malformed("At least one tag has to be asked for.", 0)
    if len(wanted) > NAMES_MAX:
        return Malformed(f"More than {NAMES_MAX} tags are asked for.", 0)
    return Search(text, tuple(wanted.items()), frozenset(containers))


def _parse(text: str, *, searches: bool) -> Condition | Malformed:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return Malformed("Half of a surrogate pair is no character.", error.start)
    if len(text) > TEXT_LENGTH_MAX:
        return Malformed(f"It is longer than {TEXT_LENGTH_MAX} characters.", TEXT_LENGTH_MAX)
    try:
        return _Parser(text, searches=searches).condition()
    except _MalformedError as error:
        return error.malformed


class _Group:
    """The part of a condition, in parentheses or the whole, that has been parsed."""

    __slots__ = ("alternatives", "conjunction", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.alternatives: list[Condition] = []
        self.conjunction: list[Condition] = []

    def end_conjunction(self) -> None:
        self.alternatives.append(_joined(AllOf, self.conjunction))
        self.conjunction = []

    def condition(self) -> Condition:
        self.end_conjunction()
        return _joined(AnyOf, self.alternatives)


class _Parser:
    """Parses tokens in order. Open groups are kept in a list instead of on Python's stack."""

    def __init__(self, text: str, *, searches: bool) -> None:
        self._tokens = _TOKEN.finditer(text)
        self._searches = searches
        self._terms = 0
        self._advance()

    def _advance(self) -> None:
        found = next(self._tokens)
        self._kind = found.lastgroup or ""
        self._text = found[self._kind]
        self._position = found.start(self._kind)

    def condition(self) -> Condition:
        groups = [_Group(0)]
        while True:
            if self._kind == "open":
                groups.append(_Group(self._position))
                self._advance()
                continue
            groups[-1].conjunction.append(self._comparison())
            self._close(groups)
            if self._kind == "end":
                break
            if not self._searches and self._takes_word("or"):
                groups[-1].end_conjunction()
            elif not self._takes_word("and"):
                raise self._unexpected("AND" if self._searches else "AND or OR")
        if len(groups) > 1:
            raise _MalformedError("The parenthesis is not closed.", groups[-1].position)
        return groups[0].condition()

    def _close(self, groups: list[_Group]) -> None:
        """Closes groups: each becomes a term of the enclosing group."""
        while self._kind == "close":
            if len(groups) == 1:
                raise _MalformedError("The parenthesis was not opened.", self._position)
            condition = groups.pop().condition()
            groups[-1].conjunction.append(condition)
            self._advance()

    def _comparison(self) -> Comparison:
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise _MalformedError(f"There are more than {TERMS_MAX} terms.", self._position)
        name = self._name()
        position = self._position
        asked = _OPERATORS.get(self._text) if self._kind == "operator" else None
        if asked is None:
            raise self._unexpected("an operator")
        if self._searches and asked is Operator.NE:
            raise _MalformedError("A search does not know <>.", position)
        if name == CONTAINER and asked is not Operator.EQ:
            raise _MalformedError(f"{CONTAINER} can only be compared by =.", position)
        self._advance()
        if self._kind != "value":
            raise self._unexpected("a value in single quotes")
        value = self._text[1:-1].replace("''", "'")
        if len(value) > VALUE_LENGTH_MAX:
            reason = f"The value is longer than {VALUE_LENGTH_MAX} characters."
            raise _MalformedError(reason, self._position)
        if self._searches and name != CONTAINER and PERMITTED.fullmatch(value) is None:
            raise _MalformedError("The value has characters that no tag has.", self._position)
        self._advance()
        return Comparison(name, asked, value)

    def _name(self) -> str:
        if self._kind == "name":
            name = self._text[1:-1].replace('""', '"')
            # Tag names cannot contain @; it would be taken for another kind of name.
            is_name = 1 <= len(name) <= NAME_LENGTH_MAX and not name.startswith("@")
            if not is_name or (self._searches and PERMITTED.fullmatch(name) is None):
                raise _MalformedError("No tag has such a name.", self._position)
        elif self._kind == "word":
            name = self._text
            if self._searches and name[0] == "@" and name.lower() != CONTAINER:
                raise _MalformedError(
                    f"Unsupported parameter '{name[:_QUOTED_MAX]}'.", self._position
                )
            is_tag = name[0] != "@" and name.lower() not in _RESERVED
            is_container = self._searches and name.lower() == CONTAINER
            if len(name) > NAME_LENGTH_MAX or not (is_tag or is_container):
                raise self._unexpected("the name of a tag")
            name = CONTAINER if is_container else name
        else:
            raise self._unexpected("the name of a tag")
        self._advance()
        return name

    def _takes_word(self, word: str) -> bool:
        if self._kind != "word" or self._text.lower() != word:
            return False
        self._advance()
        return True

    def _unexpected(self, expected: str) -> _MalformedError:
        if self._text in ("'", '"'):
            return _MalformedError("The quote is not closed.", self._position)
        found = f"'{self._text[:_QUOTED_MAX]}'" if self._text else "the end"
        return _MalformedError(f"Expected {expected}, not {found}.", self._position)
