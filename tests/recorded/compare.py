"""Differences between a response and the recorded ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree

from tests.probes.client import Answer, Request
from tests.recorded.digest import Node, Recorded, holds, matches

# Headers of the sender, the time and the framing say nothing about the response.
_IGNORED: Final = {
    "connection",
    "content-length",
    "date",
    "server",
    "transfer-encoding",
    "x-ms-client-request-id",
    "x-ms-request-id",
    "x-ms-version",
}
_ACCESS_CONTROL: Final = {"access-control-allow-origin", "access-control-expose-headers"}
_OF_TABLE_ERRORS: Final = {"cache-control", "x-content-type-options"}
_JSON: Final = "application/json;odata=minimalmetadata;streaming=true;charset=utf-8"
_FORM_OF_ERROR: Final = {"xml": "application/xml", "json:odata.error": _JSON}
_DECLARATION: Final = '<?xml version="1.0" encoding="utf-8"?>'
_METADATA: Final = "{http://schemas.microsoft.com/ado/2007/08/dataservices/metadata}"
_MESSAGE: Final = re.compile(
    r"(.*)\nRequestId:[0-9a-f-]{36}\nTime:[0-9-]{10}T[0-9:]{8}\.[0-9]{7}Z", re.DOTALL
)
_NOT_SHORT: Final = re.compile(r"<([\w-]+)></\1>|<[\w-]+/>")


class Difference(NamedTuple):
    """`kind` is one of status, code, message, reason, headers and body."""

    kind: str
    text: str


@dataclass(frozen=True)
class Expected:
    """The expected response to a request."""

    service: str
    recorded: Recorded
    having: frozenset[str] = frozenset()
    """Optional headers that this response must have."""
    lacking: frozenset[str] = frozenset()
    values: dict[str, str] = field(default_factory=dict)
    """The right form of headers for which several forms were recorded."""
    elements: tuple[str, ...] = ()
    """Paths of optional elements that the body has, followed by `=` and a form if one of several is
    right; preceded by `!` if the body must not have it."""
    cors: str = ""
    """The origins of the account's CORS rule; empty if it has no rule."""
    is_part: bool = False
    """Whether it is a part of a batch response."""


def differences(
    expected: Expected, request: Request, version: str, answer: Answer
) -> Iterator[Difference]:
    recorded = expected.recorded
    if answer.status != recorded.status:
        yield Difference("status", f"{answer.status} {error_code(answer)} for {recorded.status}")
        return
    yield from _reason(expected, answer)
    yield from _headers(expected, request, version, answer)
    if recorded.is_error:
        yield from _error(expected, answer)
    else:
        yield from _body(expected, request, version, answer)
    if not expected.is_part:
        # Requests with an unknown version get no version header.
        unknown = not recorded.code_in_header and recorded.code in {"", "InvalidHeaderValue"}
        result = answer.headers.get("x-ms-version")
        if result != (None if unknown else version) and version:
            yield Difference("headers", f"x-ms-version: {result}")


def error_code(answer: Answer) -> str:
    return answer.code or _error_parts(answer)[0]


def _reason(expected: Expected, answer: Answer) -> Iterator[Difference]:
    recorded = expected.recorded
    reason = recorded.reason
    if reason is None and recorded.body == "json:odata.error":
        reason = HTTPStatus(recorded.status).phrase
    reason = recorded.message if reason is None else reason
    if reason is not None and reason != answer.reason:
        yield Difference("reason", f"{answer.reason!r} for {reason!r}")


# Headers


def _headers(
    expected: Expected, request: Request, version: str, answer: Answer
) -> Iterator[Difference]:
    recorded = expected.recorded
    forms, optional = _expected_headers(expected, request, version, answer)
    received = {
        "x-ms-meta-*" if name.startswith("x-ms-meta-") else name: value
        for name, value in answer.headers.items()
        if name not in _IGNORED
    }
    for name in sorted(forms.keys() - received.keys()):
        yield Difference("headers", f"no {name}")
    for name in sorted(received.keys() - forms.keys() - optional):
        yield Difference("headers", f"has {name}: {received[name]}")
    for name in sorted(received.keys() & forms.keys()):
        form = expected.values.get(name, forms[name])
        if not matches(received[name], form):
            yield Difference("headers", f"{name}: {received[name]!r} for {form!r}")
    if recorded.is_error and request.method == "HEAD" and "content-length" in answer.headers:
        yield Difference("headers", "has Content-Length")


def _expected_headers(
    expected: Expected, request: Request, version: str, answer: Answer
) -> tuple[dict[str, str], set[str]]:
    """Returns header names in lower case with their forms, and optional names."""
    recorded = expected.recorded
    forms = {name.lower(): form for name, form in recorded.always.items()}
    for name, sometimes in recorded.sometimes.items():
        if _is_expected(name, expected, sometimes.when, request, version, answer):
            forms[name.lower()] = sometimes.form
    optional: set[str] = set()
    if recorded.is_error:
        if content_type := _FORM_OF_ERROR.get(recorded.body):
            forms["content-type"] = content_type
        if recorded.code_in_header:
            forms["x-ms-error-code"] = "<text>"
        if expected.service == "table" and recorded.code == "AuthenticationFailed":
            optional |= _OF_TABLE_ERRORS
        elif recorded.body == "json:odata.error":
            forms |= {"cache-control": "no-cache", "x-content-type-options": "nosniff"}
        elif expected.service != "blob":
            optional |= _OF_TABLE_ERRORS
        # The digest does not say which errors of reads had it.
        optional.add("vary")
    return {name: form for name, form in forms.items() if name not in _IGNORED}, optional


def _is_expected(
    name: str, expected: Expected, when: str, request: Request, version: str, answer: Answer
) -> bool:
    if name in expected.lacking:
        return False
    if name == "Vary":
        return bool(expected.cors) and expected.cors != "*"
    if name.lower() in _ACCESS_CONTROL:
        return expected.cors == "*"
    if name in expected.having:
        return True
    return bool(when) and holds(when, request, version, answer) is True


# Errors


def _error(expected: Expected, answer: Answer) -> Iterator[Difference]:
    recorded = expected.recorded
    if recorded.body == "empty":
        if recorded.code != answer.code:
            yield Difference("code", f"{answer.code} for {recorded.code}")
        if answer.body:
            yield Difference("body", f"has {answer.body!r}")
        return
    code, message, details, form = _error_parts(answer)
    if code != recorded.code:
        yield Difference("code", f"{code} for {recorded.code}")
        return
    if form != _form_of_error(expected):
        yield Difference("body", f"an error as {form} for {_form_of_error(expected)}")
    result = _MESSAGE.fullmatch(message)
    if result is None:
        yield Difference("message", f"without id and time: {message!r}")
    elif recorded.message is not None and result[1] != recorded.message:
        yield Difference("message", f"{result[1]!r} for {recorded.message!r}")
    for name in recorded.extra:
        if name not in details:
            yield Difference("body", f"no element {name}")


def _form_of_error(expected: Expected) -> str:
    if expected.recorded.body == "xml" and expected.service == "table":
        return "m:error"
    return str(expected.recorded.body)


def _error_parts(answer: Answer) -> tuple[str, str, frozenset[str], str]:
    """Returns code, message, names of details and the form of an error's body."""
    text = answer.body.decode().removeprefix("\ufeff")
    if text.startswith("{"):
        error = json.loads(text).get("odata.error", {})
        message = error.get("message", {}).get("value", "")
        return error.get("code", ""), message, frozenset(), "json:odata.error"
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return "", "", frozenset(), "no error"
    elements = {child.tag.replace(_METADATA, "").lower(): child.text or "" for child in root}
    form = {"Error": "xml", f"{_METADATA}error": "m:error"}.get(root.tag, root.tag)
    names = frozenset(child.tag for child in root)
    return elements.get("code", ""), elements.get("message", ""), names, form


# Bodies


def _body(
    expected: Expected, request: Request, version: str, answer: Answer
) -> Iterator[Difference]:
    recorded = expected.recorded
    if recorded.body == "none" and answer.body:
        yield Difference("body", f"has {answer.body[:60]!r}")
    if recorded.tree is None:
        return
    text = answer.body.decode().removeprefix("\ufeff")
    walk = _BodyWalk(request, version, answer)
    if recorded.body == "json":
        differences = list(walk.members(recorded.tree, json.loads(text), ""))
    else:
        if not text.startswith(_DECLARATION + "<"):
            yield Difference("body", f"begins with {text[:60]!r}")
        if bad := _NOT_SHORT.search(text):
            yield Difference("body", f"{bad[0]} for <{bad[1] or bad[0][1:-2]} />")
        root = ElementTree.fromstring(text)
        differences = list(walk.element(recorded.tree, root, root.tag))
    yield from differences
    for path in expected.elements:
        name, says, form = path.removeprefix("!").partition("=")
        if (name in walk.values) == path.startswith("!"):
            yield Difference("body", f"{'has' if path.startswith('!') else 'no'} {name}")
        elif says and not matches(walk.values[name], form):
            yield Difference("body", f"{name} is {walk.values[name]!r} for {form!r}")


class _BodyWalk:
    """Compares a body with the recorded tree."""

    def __init__(self, request: Request, version: str, answer: Answer) -> None:
        self._known = (request, version, answer)
        self.values: dict[str, str] = {}
        """Texts by their paths."""

    def element(self, node: Node, element: ElementTree.Element, path: str) -> Iterator[Difference]:
        self.values[path] = element.text or ""
        if node.name not in {element.tag, "<name>"}:
            yield Difference("body", f"{element.tag} for {node.name}")
            return
        attributes = {attribute.name: attribute for attribute in node.attributes}
        for name in element.attrib.keys() - attributes.keys():
            yield Difference("body", f"{path} has attribute {name}")
        for name, attribute in attributes.items():
            if name not in element.attrib:
                if not attribute.optional:
                    yield Difference("body", f"{path} has no attribute {name}")
            elif not matches(element.attrib[name], attribute.form or ""):
                yield Difference("body", f"{path}@{name} is {element.attrib[name]!r}")
        if node.form is not None and not matches(element.text or "", node.form):
            yield Difference("body", f"{path} is {element.text!r} for {node.form!r}")
        if node.children and (len(element) or not node.may_be_empty):
            names = [child.tag for child in element]
            yield from self._order(node, names, path)
            for child in element:
                if known := _named(node.children, child.tag):
                    yield from self.element(known, child, f"{path}/{child.tag}")

    def members(self, node: Node, value: Any, path: str) -> Iterator[Difference]:
        """Compares the members of an object, or of each object in an array."""
        if isinstance(value, list):
            for row in value:
                yield from self.members(node.children[0], row, f"{path}/[]")
            return
        if not isinstance(value, dict):
            text = str(value)
            if node.form is not None and not matches(text, node.form):
                yield Difference("body", f"{path} is {text!r} for {node.form!r}")
            return
        yield from self._order(node, list(value), path)
        for name, member in value.items():
            self.values[f"{path}/{name}"] = str(member)
            if known := _named(node.children, name):
                yield from self.members(known, member, f"{path}/{name}")

    def _order(self, node: Node, names: Sequence[str], path: str) -> Iterator[Difference]:
        """Checks that every required child is present, none is unknown, and all are in order."""
        position = {child.name: number for number, child in enumerate(node.children)}
        for child in node.children:
            if child.name in {"<name>", "*", "[]"}:
                continue
            verdict = holds(child.when, *self._known) if child.when else None
            required = not (child.optional or child.many) or (verdict is True and not child.many)
            if required and child.name not in names:
                yield Difference("body", f"{path} has no {child.name}")
            if verdict is False and child.name in names:
                yield Difference("body", f"{path} has {child.name}, which needs: {child.when}")
        if position.keys() & {"<name>", "*"}:
            names = [name for name in names if name in position]
        if unknown := [name for name in names if name not in position]:
            yield Difference("body", f"{path} has {', '.join(unknown)}")
        known = [name for name in names if name in position]
        if all(child.many for child in node.children):
            # Rows of several kinds are in one order, that of their names.
            return
        if known != sorted(known, key=position.__getitem__):
            yield Difference("body", f"{path} in the order {', '.join(dict.fromkeys(known))}")


def _named(nodes: Sequence[Node], name: str) -> Node | None:
    for node in nodes:
        if node.name in {name, "<name>"}:
            return node
    return None
