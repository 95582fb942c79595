"""Encodes batches and decodes their answers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from tests.probes.client import Answer, Request, octets

BOUNDARY: Final = "batch_11111111-2222-3333-4444-555555555555"
CONTENT_TYPE: Final = f"multipart/mixed; boundary={BOUNDARY}"

_STATUS_LINE: Final = re.compile(rb"\AHTTP/1\.1 ([0-9]{3}) ")
_CODE: Final = re.compile(rb"\r\nx-ms-error-code: ([A-Za-z]+)\r\n", re.IGNORECASE)


class Part(NamedTuple):
    """The answer to a request of a batch."""

    status: int
    code: str


def batch(requests: Iterable[Request]) -> bytes:
    """Returns the body of a batch of these requests."""
    parts = []
    for number, request in enumerate(requests):
        lines = [f"--{BOUNDARY}", "Content-Type: application/http"]
        lines += ["Content-Transfer-Encoding: binary", f"Content-ID: {number}", ""]
        lines += [f"{request.method} {request.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in request.headers]
        parts.append(octets("\r\n".join([*lines, "", ""])) + request.body + b"\r\n")
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def answered(answer: Answer) -> list[Part]:
    """Returns the answers to the parts, in the order of the requests."""
    boundary = answer.headers["content-type"].partition("boundary=")[2].encode()
    # Microsoft's C++ client accepts nothing before the first and after the last delimiter.
    before, *parts, after = answer.body.split(b"--" + boundary)
    assert (before, after) == (b"", b"--")
    found = []
    for part in parts:
        response = part.partition(b"\r\n\r\n")[2]
        status, code = _STATUS_LINE.search(response), _CODE.search(response)
        assert status is not None, part
        found.append(Part(int(status[1]), code[1].decode() if code else ""))
    return found
