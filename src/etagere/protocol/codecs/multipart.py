"""Batches: requests nested in a request, and their responses.

    `$batch`        multipart/mixed, of exactly one part:
      change set    multipart/mixed, of requests that are carried out together
      or a query    application/http, a single GET
    blob batch      multipart/mixed, of requests that are carried out each by itself

Lines may end as they do in HTTP or with a bare line feed. What stands before the first boundary
and after the last is not looked at (RFC 2046, section 5.1.1). The last one must be there: without
it nobody can tell whether something is missing, and a change set is all or nothing.

A part ends at the next boundary; its Content-Length is ignored. Malformed batches are refused as
`InvalidInput`, with the reason. Parsing takes linear time, wherever the boundaries are.
"""

from __future__ import annotations

import http
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from etagere.errors import Refusal
from etagere.protocol.http.response_heads import status_line

OPERATIONS_MAX: Final = 100
_HEAD_BYTES_MAX = 64 * 1024
_HEADERS_MAX = 40
_CONTENT_TYPE_CHARACTERS_MAX = 1024


class PartRequest(NamedTuple):
    """A request nested in a batch."""

    method: str
    target: str
    """The target as sent: a URL or only its path."""
    headers: Mapping[str, str]
    """The headers, by names in lower case."""
    body: bytes
    content_id: str
    """The Content-ID of the client; "" if there is none."""


class ChangeSet(NamedTuple):
    requests: list[PartRequest]
    """If there are too many, only the last one within the limit."""
    is_too_long: bool = False


class SingleQuery(NamedTuple):
    request: PartRequest


Batch = ChangeSet | SingleQuery


class PartResponse(NamedTuple):
    """The response to a nested request."""

    status: int
    headers: Sequence[tuple[bytes, bytes]] = ()
    body: bytes = b""
    content_id: str = ""
    """The Content-ID of the request, if the response repeats it."""
    reason: str = ""
    """The reason phrase, if it is not the standard one."""


# Parsing


def parse_batch(content_type: str, body: bytes) -> Batch | Refusal:
    """Parses a batch, whose length the caller has checked."""
    try:
        return _batch(content_type, body)
    except _Unreadable as unreadable:
        return Refusal("InvalidInput", {"Reason": str(unreadable)})


def parse_requests(
    content_type: str, body: bytes, requests_max: int
) -> list[PartRequest] | Refusal:
    """Parses a batch of independent requests."""
    try:
        parts, is_all = _parts(body, _boundary(content_type), requests_max)
        if not is_all:
            return Refusal("ExceedsMaxBatchRequestCount", {"MaxLimit": requests_max})
        return [_request(*_mime_part(part)) for part in parts]
    except _NoBoundary as unreadable:
        facts: dict[str, str | int] = {"HeaderName": "Content-Type", "HeaderValue": content_type}
        return Refusal("InvalidHeaderValue", {**facts, "Reason": str(unreadable)})
    except _Unreadable as unreadable:
        return Refusal("InvalidInput", {"Reason": str(unreadable)})


class _Unreadable(Exception):
    """A malformed batch, with the reason. Only used within this module."""


class _NoBoundary(_Unreadable):
    """A batch whose Content-Type has no boundary."""


_CHANGES: Final = frozenset({"POST", "PUT", "MERGE", "PATCH", "DELETE"})
_QUERY: Final = "GET"
_MULTIPART: Final = "multipart/mixed"
_HTTP: Final = "application/http"


def _batch(content_type: str, body: bytes) -> Batch:
    parts, is_all = _parts(body, _boundary(content_type), parts_max=1)
    if not is_all:
        raise _Unreadable("A batch holds one change set or one query, and nothing beside it.")
    headers, content = _mime_part(parts[0])
    inner_type = headers.get("content-type", "")
    if _media_type(inner_type) == _MULTIPART:
        return _change_set(inner_type, content)
    request = _request(headers, content)
    if request.method != _QUERY:
        raise _Unreadable("Changes must be inside of a change set.")
    return SingleQuery(request)


def _change_set(content_type: str, body: bytes) -> ChangeSet:
    parts, is_all = _parts(body, _boundary(content_type), parts_max=OPERATIONS_MAX)
    requests = _requests(parts if is_all else parts[-1:])
    if not {request.method for request in requests} <= _CHANGES:
        raise _Unreadable("A change set holds changes only.")
    return ChangeSet(requests, not is_all)


def _requests(parts: list[bytes]) -> list[PartRequest]:
    """Parses the requests. Inserts into one table mostly differ only in their bodies: a part that
    begins with the complete head of the previous one, including the blank line, has that head."""
    requests: list[PartRequest] = []
    last, head = _NO_REQUEST, b""
    for part in parts:
        if head and part.startswith(head):
            body = part[len(head) :]
            request = PartRequest(last.method, last.target, last.headers, body, last.content_id)
        else:
            last = request = _request(*_mime_part(part))
            # Without a body there may be no blank line, and the last header may be longer.
            head = part[: -len(request.body)] if request.body else b""
        requests.append(request)
    return requests


_NO_REQUEST: Final = PartRequest("", "", {}, b"", "")


def _request(mime_headers: Mapping[str, str], content: bytes) -> PartRequest:
    """Parses the request in a part. Some clients put the Content-ID inside of it."""
    if _media_type(mime_headers.get("content-type", "")) != _HTTP:
        raise _Unreadable("A part is neither a change set nor a request.")
    if mime_headers.get("content-transfer-encoding", "binary").lower() not in _UNENCODED:
        raise _Unreadable("The transfer encoding of a part is not supported.")
    # Empty lines before a request are ignored (RFC 9112, section 2.2).
    head, body = _split_head(content.lstrip(b"\r\n"))
    line, _, lines = head.partition(b"\n")
    found = _REQUEST_LINE.fullmatch(_text(line))
    if found is None:
        raise _Unreadable("A part does not begin with a request line.")
    headers = _headers(lines) if lines else {}
    content_id = mime_headers.get("content-id") or headers.get("content-id", "")
    return PartRequest(found[1], found[2], headers, body, content_id)


_REQUEST_LINE = re.compile(r"([A-Z]+) +([^\x00-\x20\x7f]+)(?: +HTTP/1\.[01])? *\r?")
_UNENCODED: Final = frozenset({"binary", "8bit", "7bit"})


def _mime_part(part: bytes) -> tuple[Mapping[str, str], bytes]:
    head, content = _split_head(part)
    return _headers(head), content


# Boundaries

_PARAMETER = re.compile(r';\s*([^\s=;"]+)\s*=\s*(?:"([^"]*)"|([^\s;"]+))\s*')
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _boundary(content_type: str) -> bytes:
    boundaries = []
    if _media_type(content_type) == _MULTIPART and len(content_type) < _CONTENT_TYPE_CHARACTERS_MAX:
        boundaries = [
            quoted or token
            for name, quoted, token in _PARAMETER.findall(content_type)
            if name.lower() == "boundary"
        ]
    if len(boundaries) > 1:
        raise _Unreadable("The content type has more than one boundary.")
    if not boundaries or _BOUNDARY.fullmatch(boundaries[0]) is None:
        raise _NoBoundary("The content type is not multipart/mixed with a boundary.")
    return str(boundaries[0]).encode()


def _parts(body: bytes, boundary: bytes, parts_max: int) -> tuple[list[bytes], bool]:
    """Returns the parts between the boundaries, at most `parts_max`, and whether these are all."""
    body = b"\n" + body
    beginning = b"\n--" + boundary
    parts: list[bytes] = []
    start: int | None = None
    # Not one regular expression for all of it: every batch has its own boundary, and compiling
    # takes longer than parsing a small batch.
    at = body.find(beginning)
    for _ in range(_LIKE_DELIMITERS_MAX):
        if at < 0:
            break
        stop, is_last = at + len(beginning), False
        if body.startswith(b"\r\n", stop):
            stop += 2
        else:
            rest = _REST_OF_DELIMITER.match(body, stop)
            if rest is None:
                at = body.find(beginning, stop)
                continue
            stop, is_last = rest.end() + 1, rest[1] is not None
        if start is not None:
            parts.append(body[start:at].removesuffix(b"\r"))
        if is_last:
            if not parts:
                break
            return parts, True
        if len(parts) == parts_max:
            return parts, False
        start = stop
        at = body.find(beginning, at + len(beginning))
    raise _Unreadable("There is no part, or no boundary behind the last one.")


_REST_OF_DELIMITER = re.compile(rb"(--)?[ \t]*+\r?+(?=\n|\Z)")
_LIKE_DELIMITERS_MAX = 10 * OPERATIONS_MAX
"""The maximum number of lines that begin with the boundary but continue differently, as when one
boundary is a prefix of another."""


# Heads

_BLANK_LINE = re.compile(rb"\n\r?\n")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]++):([^\x00-\x08\x0a-\x1f\x7f]*+)\r?")


def _split_head(content: bytes) -> tuple[bytes, bytes]:
    """Splits a part into head and body. Without a body the blank line may be missing, because it
    belongs to the boundary."""
    blank = _BLANK_LINE.search(content)
    head, body = (
        (content, b"") if blank is None else (content[: blank.start()], content[blank.end() :])
    )
    if len(head) > _HEAD_BYTES_MAX:
        raise _Unreadable("The headers of a part are too long.")
    return head.removesuffix(b"\n"), body


def _text(head: bytes) -> str:
    try:
        return head.decode()
    except UnicodeDecodeError:
        raise _Unreadable("The head of a part is not UTF-8.") from None


def _headers(head: bytes) -> Mapping[str, str]:
    """Parses headers, by names in lower case. Short heads are cached, because the parts of a batch
    mostly have the same; the result must not be modified."""
    return _known_headers(head) if len(head) <= _KNOWN_BYTES_MAX else _read_headers(head)


_KNOWN_BYTES_MAX = 1024


def _read_headers(head: bytes) -> Mapping[str, str]:
    lines = _text(head).split("\n")
    if len(lines) > _HEADERS_MAX:
        raise _Unreadable("A part has too many headers.")
    headers: dict[str, str] = {}
    repeated: dict[str, list[str]] = {}
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            raise _Unreadable("A line of a part's head is no header.")
        name, value = found[1].lower(), found[2].strip(" \t")
        if name in headers:
            repeated.setdefault(name, [headers[name]]).append(value)
        else:
            headers[name] = value
    for name, values in repeated.items():
        headers[name] = ", ".join(values)
    return headers


_known_headers = lru_cache(maxsize=256)(_read_headers)


# Formatting

_HTTP_PART: Final = f"Content-Type: {_HTTP}\r\n".encode()
_BINARY_PART: Final = _HTTP_PART + b"Content-Transfer-Encoding: binary\r\n\r\n"
_STATUS_LINES: Final = {status.value: status_line(status.value) for status in http.HTTPStatus}


def format_changeset(parts: Sequence[bytes], batch_id: str, changeset_id: str) -> tuple[str, bytes]:
    """Returns the Content-Type and body of the response to a change set: all responses, from
    `format_part`, or only that of the operation that failed."""
    boundary = f"changesetresponse_{changeset_id}"
    formatted = _multipart(boundary, parts)
    return _batch_answer(
        batch_id, f"Content-Type: {_multipart_type(boundary)}\r\n\r\n".encode() + formatted
    )


def format_query(response: PartResponse, batch_id: str) -> tuple[str, bytes]:
    """Returns the Content-Type and body of the response to a single query."""
    return _batch_answer(batch_id, format_part(response))


def format_responses(responses: Sequence[PartResponse], batch_id: str) -> tuple[str, bytes]:
    """Returns the Content-Type and body of the response to independent requests.

    Unlike the response to a change set, it ends with the closing delimiter: Microsoft's C++ client
    treats a line ending as the beginning of another part.
    """
    boundary = f"batchresponse_{batch_id}"
    parts = [_identified_head(one.content_id) + _format_nested(one) for one in responses]
    return _multipart_type(boundary), _multipart(boundary, parts)


def _identified_head(content_id: str) -> bytes:
    if not content_id:
        return _HTTP_PART + b"\r\n"
    return b"%bContent-ID: %b\r\n\r\n" % (_HTTP_PART, _without_line_ends(content_id.encode()))


def _batch_answer(batch_id: str, *parts: bytes) -> tuple[str, bytes]:
    boundary = f"batchresponse_{batch_id}"
    return _multipart_type(boundary), _multipart(boundary, parts) + b"\r\n"


def _multipart_type(boundary: str) -> str:
    return f"{_MULTIPART}; boundary={boundary}"


def _multipart(boundary: str, parts: Sequence[bytes]) -> bytes:
    delimiter = f"--{boundary}".encode()
    lines = [line for part in parts for line in (delimiter, part)]
    return b"\r\n".join([*lines, delimiter + b"--"])


def format_part(response: PartResponse) -> bytes:
    """Formats a part of the response to a change set, or the response to a query."""
    return _BINARY_PART + _format_nested(response)


def _format_nested(response: PartResponse) -> bytes:
    lines = [b"%b: %b\r\n" % header for header in response.headers]
    head = b"".join(lines)
    if head.count(b"\n") > len(lines) or head.count(b"\r") > len(lines):
        # A newline in a value would begin another header, or the body.
        head = b"".join([_without_line_ends(line) + b"\r\n" for line in lines])
    first = _STATUS_LINES[response.status]
    if response.reason:
        first = status_line(response.status, response.reason)
    return b"%b%b\r\n%b" % (first, head, response.body)


def _without_line_ends(text: bytes) -> bytes:
    return text.translate(None, b"\r\n")
