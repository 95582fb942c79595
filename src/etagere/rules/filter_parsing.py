"""The language of `$filter`: parsing a filter into a condition.

    condition    conjunction ("or" conjunction)*
    conjunction  term ("and" term)*
    term         "not" term | "(" condition ")" | comparison | name | "true" | "false"
    comparison   name operator literal | literal operator name
    operator     eq | ne | gt | ge | lt | le

Case matters, except in `true`, `false` and the prefixes and suffixes of literals. A name alone is a
boolean property that must be true. `not a eq 1` means `not (a eq 1)`: the other reading, which
OData's precedence suggests, is meaningless.

The parser does not recurse, and flattens its result: redundant parentheses are dropped, and `((a or
b) or c) or d`, as clients write it that append conditions, becomes one alternative of four. So only
real nesting counts towards the limit, and functions that process the result may recurse.
"""

from __future__ import annotations

import enum
import re
from typing import ClassVar, Final, TypeAlias

import msgspec

from etagere.errors import Refusal
from etagere.model.tables import Edm
from etagere.rules.filter_literals import (
    NAMED,
    Literal,
    parse_named,
    parse_number,
    parse_quoted,
)

TEXT_BYTES_MAX: Final = 64 * 1024
TERMS_MAX: Final = 5_000
NESTING_MAX: Final = 200
"""The maximum nesting of and, or and not."""


# Conditions


class Operator(enum.Enum):
    EQ = "eq"
    NE = "ne"
    GT = "gt"
    GE = "ge"
    LT = "lt"
    LE = "le"

    @property
    def mirrored(self) -> Operator:
        """The operator with its operands exchanged."""
        return _MIRRORED.get(self, self)


_MIRRORED: Final = {
    Operator.GT: Operator.LT,
    Operator.GE: Operator.LE,
    Operator.LT: Operator.GT,
    Operator.LE: Operator.GE,
}


class Comparison(msgspec.Struct, frozen=True):
    """A comparison of a property with a constant."""

    name: str
    operator: Operator
    literal: Literal
    depth: ClassVar[int] = 0


class AllOf(msgspec.Struct, frozen=True):
    """A conjunction; an empty one is always true."""

    parts: tuple[Condition, ...] = ()
    depth: int = 0


class AnyOf(msgspec.Struct, frozen=True):
    """A disjunction; an empty one is always false."""

    parts: tuple[Condition, ...] = ()
    depth: int = 0


class Not(msgspec.Struct, frozen=True):
    part: Condition
    depth: int


Condition: TypeAlias = Comparison | AllOf | AnyOf | Not

ALWAYS: Final = AllOf()
NEVER: Final = AnyOf()


def _joined(kind: type[AllOf] | type[AnyOf], conditions: list[Condition]) -> Condition:
    if len(conditions) == 1:
        return conditions[0]
    parts: list[Condition] = []
    depth = 0
    for condition in conditions:
        if isinstance(condition, kind):
            parts.extend(condition.parts)
            depth = max(depth, condition.depth)
        else:
            parts.append(condition)
            depth = max(depth, condition.depth + 1)
    return kind(tuple(parts), depth)


def _negated(condition: Condition) -> Condition:
    if isinstance(condition, Not):
        return condition.part
    return Not(condition, condition.depth + 1)


# Parsing

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<open> \( )
      | (?P<close> \) )
      | (?P<quoted> [A-Za-z]*+ ' [^']*+ (?: '' [^']*+ )*+ ' )
      | (?P<number>
            (?: -INF
              | -? (?: [0-9]++ (?: \.[0-9]*+ )? | \.[0-9]++ ) (?: [eE][+-]?[0-9]++ )? [LlDd]?
            ) (?![\w.']) )
      | (?P<word> [^\W\d] [^\s\x00-/:-@\[-^`{-\x7f]* )
      | (?P<end> \Z )
      | (?P<other> . )
    )""",
    re.VERBOSE | re.DOTALL,
)
"""Matches at every position. A word is more than a C# identifier: it may contain all characters
beyond ASCII."""

_REPEATED_MAX = 2_048
"""The most characters of a malformed filter that a refusal repeats."""
_QUOTED_MAX = 40
"""The most characters of an unexpected token that a refusal repeats."""

_OPERATORS: Final = {operator.value: operator for operator in Operator}
_NEVER_ALONE: Final = frozenset({"and", "or", *_OPERATORS})
"""These may be names of properties, but are mistakes as terms of their own."""


class _MalformedError(Exception):
    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


def _refuse(reason: str, position: int, message: str = "") -> Refusal:
    return Refusal(
        "InvalidInput", {"Reason": reason, "Position": position}, message_override=message
    )


def parse_condition(text: str) -> Condition | Refusal:
    """Parses a filter; an empty one is always true. The position in a refusal counts characters
    from 0. The position in the message is, as in the service, the end of the unexpected token."""
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        return _refuse("Half of a surrogate pair is no character.", error.start)
    if size_bytes > TEXT_BYTES_MAX:
        return _refuse(f"The filter is longer than {TEXT_BYTES_MAX} bytes.", 0)
    if not text.strip():
        return ALWAYS
    parser = _Parser(text)
    try:
        return parser.condition()
    except _MalformedError as malformed:
        message = f"Syntax error at position {parser.end} in '{text[:_REPEATED_MAX]}'."
        return _refuse(malformed.reason, malformed.position, message)


class _Group:
    """The part of a condition, in parentheses or the whole, that has been parsed."""

    __slots__ = ("alternatives", "conjunction", "negates", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.alternatives: list[Condition] = []
        self.conjunction: list[Condition] = []
        self.negates = False

    def add(self, term: Condition) -> None:
        self.conjunction.append(_negated(term) if self.negates else term)
        self.negates = False

    def end_conjunction(self) -> None:
        self.alternatives.append(_joined(AllOf, self.conjunction))
        self.conjunction = []

    def condition(self) -> Condition:
        self.end_conjunction()
        condition = _joined(AnyOf, self.alternatives)
        if condition.depth > NESTING_MAX:
            raise _MalformedError(f"Nested more than {NESTING_MAX} deep.", self.position)
        return condition


class _Parser:
    """Parses tokens in order. Open groups are kept in a list instead of on Python's stack."""

    end: int
    """The end of the last token."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.finditer(text)
        self._terms = 0
        self._advance()

    def _advance(self) -> None:
        found = next(self._tokens)
        self._kind = found.lastgroup or ""
        self._text = found[self._kind]
        self._position = found.start(self._kind)
        self.end = found.end()

    def condition(self) -> Condition:
        groups = [_Group(0)]
        while True:
            if self._takes_word("not"):
                groups[-1].negates = not groups[-1].negates
            elif self._kind == "open":
                groups.append(_Group(self._position))
                self._advance()
            else:
                groups[-1].add(self._term())
                self._close(groups)
                if self._kind == "end":
                    break
                if self._takes_word("or"):
                    groups[-1].end_conjunction()
                elif not self._takes_word("and"):
                    raise self._unexpected("'and' or 'or'")
        if len(groups) > 1:
            raise _MalformedError("The parenthesis is not closed.", groups[-1].position)
        return groups[0].condition()

    def _close(self, groups: list[_Group]) -> None:
        """Closes groups: each becomes a term of the enclosing group."""
        while self._kind == "close":
            if len(groups) == 1:
                raise _MalformedError("The parenthesis was not opened.", self._position)
            condition = groups.pop().condition()
            groups[-1].add(condition)
            self._advance()

    def _term(self) -> Condition:
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise _MalformedError(f"There are more than {TERMS_MAX} terms.", self._position)
        position, text = self._position, self._text
        left = self._operand()
        operator = _OPERATORS.get(self._text) if self._kind == "word" else None
        if operator is not None:
            self._advance()
            return self._comparison(left, operator, position)
        if isinstance(left, Literal):
            if left.type is not Edm.BOOLEAN:
                raise self._unexpected("a comparison")
            return ALWAYS if left.value else NEVER
        if text in _NEVER_ALONE:
            raise _MalformedError(f"Expected a term, not '{text}'.", position)
        return Comparison(left, Operator.EQ, NAMED["true"])

    def _comparison(self, left: str | Literal, operator: Operator, position: int) -> Comparison:
        right = self._operand()
        if isinstance(left, str) and isinstance(right, Literal):
            return Comparison(left, operator, right)
        if isinstance(left, Literal) and isinstance(right, str):
            return Comparison(right, operator.mirrored, left)
        raise _MalformedError("A property is compared with a constant.", position)

    def _operand(self) -> str | Literal:
        """Parses the name of a property, or a literal."""
        operand: str | Literal | None
        if self._kind == "word":
            operand = parse_named(self._text) or self._text
        elif self._kind == "number":
            operand = parse_number(self._text)
        elif self._kind == "quoted":
            operand = parse_quoted(self._text)
        else:
            raise self._unexpected("a property or a constant")
        if operand is None:
            raise _MalformedError("The constant cannot be read.", self._position)
        self._advance()
        return operand

    def _takes_word(self, word: str) -> bool:
        if self._kind != "word" or self._text != word:
            return False
        self._advance()
        return True

    def _unexpected(self, expected: str) -> _MalformedError:
        if self._text == "'":
            return _MalformedError("The quote is not closed.", self._position)
        found = f"'{self._text[:_QUOTED_MAX]}'" if self._text else "the end"
        return _MalformedError(f"Expected {expected}, not {found}.", self._position)
