"""Checks of answers: refusals with the expected code, and errors in the service's format."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Final

from tests.probes.blob.batches import answered
from tests.probes.client import Answer, Request, octets
from tests.protocol.table.batches import answers_in
from tests.server import ROOT

Code = tuple[int, str]
"""A status and an error code."""

AUTHENTICATION_FAILED: Final = (403, "AuthenticationFailed")
NO_AUTHENTICATION: Final = (401, "NoAuthenticationInformation")
AUTHORIZATION_FAILURE: Final = (403, "AuthorizationFailure")
PERMISSION_MISMATCH: Final = (403, "AuthorizationPermissionMismatch")
SERVICE_MISMATCH: Final = (403, "AuthorizationServiceMismatch")
RESOURCE_TYPE_MISMATCH: Final = (403, "AuthorizationResourceTypeMismatch")
BLOB_OVERWRITE: Final = (403, "UnauthorizedBlobOverwrite")
"""The caller may create, but the blob exists."""

DOCUMENTED_CODES: Final[dict[str, int]] = json.loads(
    (ROOT / "tests/data/error_codes.json").read_text("utf-8")
)
"""The status of every documented error code."""
DOCUMENTED_FOR_FILES: Final = {(404, "PreviousSnapshotNotFound")}
"""Statuses of error codes that are different in the other services."""
REFUSALS: Final = {400, 401, 403, 404, 405, 409}
METHODS: Final = {"GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS", "MERGE", "TRACE"}
UNREADABLE: Final = {400, 413, 414, 431, 501, 505}
"""Status codes of the HTTP layer, which answers malformed requests without asking the service."""

_TARGET: Final = re.compile(rb"/[!$-~]*")
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(rb"[\t -~\x80-\xff]*")
_FRAMING: Final = {"transfer-encoding", "expect", "upgrade", "connection"}
_TARGET_BYTES_MAX: Final = 32 * 1024
_HEAD_BYTES_MAX: Final = 64 * 1024
_HEADERS_MAX: Final = 250


def refusal_fault(answer: Answer, *expected: Code) -> str:
    """Returns what is wrong with an answer that should be a refusal, or an empty string."""
    received = (answer.status, answer.code)
    if answer.status not in REFUSALS or (expected and received not in expected):
        return f"answered {received}"
    return ""


def unrefused(
    ask: Callable[[Request], Answer], cases: Iterable[tuple[str, Request]], *expected: Code
) -> list[tuple[str, str]]:
    """Sends requests; returns those that were not refused as expected, with what is wrong."""
    return [
        (label, fault)
        for label, request in cases
        if (fault := refusal_fault(ask(request), *expected))
    ]


def is_readable(request: Request) -> bool:
    """Whether it is valid HTTP within the limits, so that the service sees it."""
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


def answer_faults(answer: Answer, service: str, *, head: bool) -> Iterator[str]:
    """Yields what is wrong with the answer to a readable request."""
    # Tables answer query options that they do not support with this status.
    unsupported = service == "table" and answer.status == HTTPStatus.NOT_IMPLEMENTED
    if answer.status >= 500 and not unsupported:
        yield f"status {answer.status}"
    for name in ("x-ms-request-id", "x-ms-version", "date", "server"):
        if not answer.headers.get(name):
            yield f"no {name}"
    if answer.status >= 300 and not answer.code:
        yield "no x-ms-error-code"
    if answer.status >= 400:
        if answer.status not in UNREADABLE - {400} and not _is_documented(
            answer.status, answer.code
        ):
            yield f"undocumented error {answer.status} {answer.code}"
        if not head:
            yield from _error_faults(answer, service)
    if answer.headers.get("content-type", "").startswith("multipart/mixed") and not head:
        yield from _part_faults(answer, service)


def _is_documented(status: int, code: str) -> bool:
    # The status of this error is that of the answer of the source.
    documented = DOCUMENTED_CODES.get(code) == status or (status, code) in DOCUMENTED_FOR_FILES
    return documented or code == "CannotVerifyCopySource"


def _part_faults(answer: Answer, service: str) -> Iterator[str]:
    """Yields what is wrong with the answers in a batch or an entity group."""
    if service == "blob":
        parts = [(part.status, part.code) for part in answered(answer)]
    else:
        responses = answers_in(answer.headers["content-type"], answer.body)
        parts = [(part.status, part.code if part.status >= 400 else "") for part in responses]
    for status, code in parts:
        unsupported = service == "table" and status == HTTPStatus.NOT_IMPLEMENTED
        if status >= 500 and not unsupported:
            yield f"status {status} in a batch"
        if status >= 400 and not _is_documented(status, code):
            yield f"undocumented error {status} {code} in a batch"


def unreadable_faults(answers: list[Answer], service: str) -> Iterator[str]:
    """Yields what is wrong with the answers to bytes that may be one request, several or none."""
    for number, answer in enumerate(answers):
        if "x-ms-request-id" in answer.headers:
            yield from answer_faults(answer, service, head=False)
            continue
        if answer.status not in UNREADABLE:
            yield f"status {answer.status} without a request"
        if number < len(answers) - 1 or answer.headers.get("connection") != "close":
            yield "a connection that stays open after an unreadable request"
        for name in ("date", "server"):
            if not answer.headers.get(name):
                yield f"no {name}"
        yield from _error_faults(answer, service)


def _error_faults(answer: Answer, service: str) -> Iterator[str]:
    if service == "table":
        yield from _odata_error_faults(answer)
        return
    error = answer.error()
    if not error.get("Code") or not error.get("Message"):
        yield f"no error in the body: {answer.body[:200]!r}"
    elif answer.code and error["Code"] != answer.code:
        yield f"{error['Code']} in the body and {answer.code} in the head"
    if answer.headers.get("content-type") != "application/xml":
        yield f"an error of type {answer.headers.get('content-type')}"


def _odata_error_faults(answer: Answer) -> Iterator[str]:
    if answer.headers.get("content-type") == "application/xml":
        named = re.search(rb"<m:error xmlns:m=.*<m:code>(.*)</m:code>", answer.body)
        if named is None or named[1].decode() != answer.headers.get("x-ms-error-code"):
            yield f"no error in the body: {answer.body[:200]!r}"
        return
    try:
        error = json.loads(answer.body)["odata.error"]
        fields = error["code"], error["message"]["lang"], error["message"]["value"]
    except (ValueError, KeyError, TypeError):
        yield f"no error in the body: {answer.body[:200]!r}"
        return
    if not all(fields) or (answer.code and fields[0] != answer.code):
        yield f"{fields[0]} in the body and {answer.code} in the head"
    if not answer.headers.get("content-type", "").startswith("application/json;odata="):
        yield f"an error of type {answer.headers.get('content-type')}"
