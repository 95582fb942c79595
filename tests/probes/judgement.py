"""Whether an answer is as it should be: a refusal, or whatever a spoiled request deserves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tests.probes.client import Answer, Request, octets
from tests.probes.parts import answered

REFUSALS: Final = {400, 401, 403, 404, 405, 409}
METHODS: Final = {"GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS", "MERGE", "TRACE"}
# By these the connection refuses what is no request, without asking the service.
UNREADABLE: Final = {400, 413, 414, 431, 501, 505}

_TARGET: Final = re.compile(rb"/[!$-~]*")
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(rb"[\t -~\x80-\xff]*")
_FRAMING: Final = {"transfer-encoding", "expect", "upgrade", "connection"}
_TARGET_BYTES_MAX: Final = 32 * 1024
_HEAD_BYTES_MAX: Final = 64 * 1024
_HEADERS_MAX: Final = 250


def refusal(answer: Answer, *expected: tuple[int, str]) -> str:
    """What is wrong with an answer that should be a refusal; "" if nothing is."""
    told = (answer.status, answer.code)
    if answer.status not in REFUSALS or (expected and told not in expected):
        return f"answered {told}"
    return ""


def readable(request: Request) -> bool:
    """Whether it is a request by the rules of HTTP and within the limits, whatever it asks."""
    headers = [(octets(name), octets(value)) for name, value in request.headers]
    names = [name.decode().lower() for name, _ in headers if name.isascii()]
    size = sum(len(name) + len(value) + 4 for name, value in headers)
    target = octets(request.target)
    return (
        request.method in METHODS
        and _TARGET.fullmatch(target) is not None
        and len(target) <= _TARGET_BYTES_MAX
        and size <= _HEAD_BYTES_MAX
        and len(headers) <= _HEADERS_MAX
        and all(_NAME.fullmatch(name) and _VALUE.fullmatch(value) for name, value in headers)
        and not _FRAMING.intersection(names)
        and names.count("host") <= 1
        and request.header("content-length") in {None, str(len(request.body))}
    )


def faults(answer: Answer, *, head: bool) -> Iterator[str]:
    """What is wrong with the answer to a request that could be read."""
    if answer.status >= 500:
        yield f"status {answer.status}"
    if answer.headers.get("content-type", "").startswith("multipart/mixed") and not head:
        yield from (f"{part} in a batch" for part in answered(answer) if part.status >= 500)
    for name in ("x-ms-request-id", "x-ms-version", "date", "server"):
        if not answer.headers.get(name):
            yield f"no {name}"
    if answer.status >= 300 and not answer.code:
        yield "no x-ms-error-code"
    if answer.status >= 400 and not head:
        yield from _faults_of_error(answer)


def faults_unreadable(answers: list[Answer]) -> Iterator[str]:
    """What is wrong with the answers to bytes that may be a request, several or none."""
    for number, answer in enumerate(answers):
        if "x-ms-request-id" in answer.headers:
            yield from faults(answer, head=False)
            continue
        if answer.status not in UNREADABLE:
            yield f"status {answer.status} without a request"
        if number < len(answers) - 1 or answer.headers.get("connection") != "close":
            yield "a connection that goes on after what could not be read"
        for name in ("date", "server"):
            if not answer.headers.get(name):
                yield f"no {name}"
        yield from _faults_of_error(answer)


def _faults_of_error(answer: Answer) -> Iterator[str]:
    error = answer.error()
    if not error.get("Code") or not error.get("Message"):
        yield f"a body that explains nothing: {answer.body[:200]!r}"
    elif answer.code and error["Code"] != answer.code:
        yield f"{error['Code']} in the body and {answer.code} in the head"
    if answer.headers.get("content-type") != "application/xml":
        yield f"an error of type {answer.headers.get('content-type')}"
