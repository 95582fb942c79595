"""The recorded responses: by operation and status, with the form of their values and bodies.

The data are facts extracted by script from public test recordings of 2019 to 2023. `always` names
the headers that each response of a kind had, `sometimes` those that some had, with the condition
that separated the two where one was found."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.probes.client import Answer, Request

DATA: Final = Path(__file__).parents[1] / "data"
SERVICES: Final = ("blob", "queue", "table", "file")


@dataclass(frozen=True)
class OptionalItem:
    """A header that `n` of the responses had, or an optional element."""

    form: str
    n: int
    when: str = ""


@dataclass(frozen=True)
class Node:
    """An element of a body or a member of an object, with its children in order.

    The name `*` stands for members that are not listed, `<name>` for any one, `[]` for the rows of
    an array."""

    name: str
    optional: bool = False
    many: bool = False
    may_be_empty: bool = False
    when: str = ""
    form: str | None = None
    attributes: tuple[Node, ...] = ()
    children: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Recorded:
    """The responses of one operation with the same status and, for errors, the same code."""

    operation: str
    status: int
    n: int
    code: str = ""
    code_in_header: bool = True
    message: str | None = None
    reason: str | None = None
    always: dict[str, str] = field(default_factory=dict)
    sometimes: dict[str, OptionalItem] = field(default_factory=dict)
    body: Any = None
    extra: tuple[str, ...] = ()
    tree: Node | None = None

    @property
    def is_error(self) -> bool:
        return self.status >= 300


@dataclass(frozen=True)
class Digest:
    """All that was recorded of a service."""

    answers: tuple[Recorded, ...]

    def find(self, operation: str, status: int, code: str, body: str = "") -> Recorded:
        """Finds a recorded response; the body decides between two that are otherwise equal."""
        for recorded in self.answers:
            if (recorded.operation, recorded.status, recorded.code) != (operation, status, code):
                continue
            if not body or recorded.body == body:
                return recorded
        raise LookupError(f"never recorded: {operation} {status} {code}")


@cache
def digest(service: str) -> Digest:
    text = (DATA / f"recorded_{service}.json").read_text("utf-8")
    answers = []
    for operation, result in json.loads(text)["operations"].items():
        for row in (*result.get("answers", ()), *result.get("errors", ())):
            answers.append(_recorded(operation, row))
    return Digest(tuple(answers))


def _recorded(operation: str, row: dict[str, Any]) -> Recorded:
    known = {name: value for name, value in row.items() if name != "when"}
    known["sometimes"] = {
        name: OptionalItem(**result) for name, result in row.get("sometimes", {}).items()
    }
    known["extra"] = tuple(row.get("extra", ()))
    known["tree"] = _node(row["tree"][0]) if "tree" in row else None
    return Recorded(operation, **known)


def _node(row: dict[str, Any]) -> Node:
    nested = {
        name: tuple(_node(child) for child in row.get(name, ()))
        for name in ("attributes", "children")
    }
    return Node(**{**row, **nested})


# Conditions


def holds(when: str, request: Request, version: str, answer: Answer) -> bool | None:
    """Reports whether a condition of the recordings is met; None if the request alone does not
    say."""
    verdicts = [
        _term(term, request, version, answer)
        for term in when.removeprefix("mostly ").removeprefix("when ").split(", ")
    ]
    if None in verdicts:
        return None
    return all(verdicts)


def _term(term: str, request: Request, version: str, answer: Answer) -> bool | None:
    if term.startswith("not "):
        verdict = _term(term.removeprefix("not "), request, version, answer)
        return None if verdict is None else not verdict
    if since := re.fullmatch(r"from (?:x-ms-version )?([0-9-]+)", term):
        return version >= since[1]
    if until := re.fullmatch(r"before (?:x-ms-version )?([0-9-]+)", term):
        return version < until[1]
    if sent := re.fullmatch(r"([\w-]+) sent", term):
        return request.header(sent[1].lower()) is not None
    if asked := re.fullmatch(r"\?([$\w]+)(?:=(\w+))?", term):
        return _asks(request, asked[1], asked[2])
    if result := re.fullmatch(r"answer ([\w-]+): (.+)", term):
        return answer.headers.get(result[1].lower()) == result[2]
    if match := re.fullmatch(r"([\w-]+): (.+)", term):
        return request.header(match[1].lower()) == match[2]
    if term == "SAS":
        return _asks(request, "sig", None)
    if term in {"versioned account", "account with hierarchical namespace"}:
        return False
    return None


def _asks(request: Request, name: str, value: str | None) -> bool:
    for parameter, sent in request.query:
        if parameter.replace("%24", "$").lower() == name:
            return value is None or value in sent.replace("%2C", ",").split(",")
    return False


# Forms of values

_DAY: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_FORMS: Final = {
    "<etag>": "0x[0-9A-F]{15}",
    "<etag unquoted>": "0x[0-9A-F]{15}",
    "<iso7>": _DAY + r"T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{7}Z",
    # Without trailing zeros, which few recordings have.
    "<iso7, colons as %3A>": _DAY + r"T[0-9]{2}%3A[0-9]{2}%3A[0-9]{2}(\.[0-9]{0,6}[1-9])?Z",
    "<iso, <7 digits, colons as %3A>": (
        _DAY + r"T[0-9]{2}%3A[0-9]{2}%3A[0-9]{2}(?:\.[0-9]{0,5}[1-9])?Z"
    ),
    "<iso, fewer than 7 digits>": _DAY + r"T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{0,5}[1-9])?Z",
    "<iso0>": _DAY + "T[0-9]{2}:[0-9]{2}:[0-9]{2}Z",
    "<rfc1123>": "[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT",
    "<guid>": "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "<int>": "[0-9]+",
    "<length>": "[0-9]+",
    "<base64 with '-' for '='>": "(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}-|[A-Za-z0-9+/]{2}--)+",
    "<base64-8>": "[A-Za-z0-9+/]{11}=",
    "<base64-16>": "[A-Za-z0-9+/]{22}==",
    "<base64-32>": "[A-Za-z0-9+/]{43}=",
    "<text>": "(?s:.*)",
    "<u64>": "[0-9]{1,20}",
    "<url>": "https?://.*",
    "<x-ms-version>": _DAY,
}
_PLACEHOLDER: Final = re.compile("(" + "|".join(re.escape(f) for f in _FORMS) + ")")


def matches(value: str, form: str) -> bool:
    return any(re.fullmatch(pattern, value) for pattern in _patterns(form))


@cache
def _patterns(form: str) -> tuple[str, ...]:
    return tuple(_pattern(alternative) for alternative in form.split(" or "))


def _pattern(alternative: str) -> str:
    if re.fullmatch(r"\(?empty\)?(?: \([0-9]+\))?", alternative):
        return ""
    if re.fullmatch("[0-9]+", alternative):
        return "[0-9]+"
    return "".join(
        _FORMS.get(piece) or re.escape(piece) for piece in _PLACEHOLDER.split(alternative)
    )
