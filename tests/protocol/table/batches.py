"""Entity groups as clients write and read them, implemented independently of the server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

BATCH_TYPE: Final = "multipart/mixed; boundary=batch_1"


class PartAnswer(NamedTuple):
    """A status, headers by their names in lower case, and a body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)["odata.error"]
        return found

    @property
    def code(self) -> str:
        return str(self.error["code"])

    @property
    def operation(self) -> int | None:
        """Returns the index of the refused operation, if there is one."""
        found = re.match(r"([0-9]+):", self.error["message"]["value"])
        return None if found is None else int(found[1])


# Requests


def part(
    method: str, target: str, entity: dict[str, Any] | bytes | None = None, **headers: str
) -> bytes:
    """Returns one request of a group."""
    body = json.dumps(entity).encode() if isinstance(entity, dict) else entity or b""
    sent = {"Content-Type": "application/json", **headers} if body else headers
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in sent.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def change_set(parts: Iterable[bytes]) -> bytes:
    head = b"Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    inner = b"".join(b"--changeset_1\r\n%b%b\r\n" % (head, each) for each in parts)
    return batch(
        b"Content-Type: multipart/mixed; boundary=changeset_1\r\n\r\n%b--changeset_1--\r\n" % inner
    )


def single_query(request: bytes) -> bytes:
    return batch(b"Content-Type: application/http\r\n\r\n" + request)


def batch(*parts: bytes) -> bytes:
    return b"".join(b"--batch_1\r\n%b\r\n" % each for each in parts) + b"--batch_1--\r\n"


# Responses

_BOUNDARY: Final = re.compile(r'multipart/mixed; boundary="?([^";]+)"?', re.IGNORECASE)


def answers_in(content_type: str, body: bytes) -> list[PartAnswer]:
    """Returns the responses to the parts of a group."""
    (outer,) = _split(content_type, body)
    headers, content = _head(outer)
    if _BOUNDARY.fullmatch(headers["content-type"]) is None:
        return [_answer(outer)]
    return [_answer(inner) for inner in _split(headers["content-type"], content)]


def _split(content_type: str, body: bytes) -> list[bytes]:
    found = _BOUNDARY.fullmatch(content_type)
    assert found is not None, content_type
    delimiter = b"--" + found[1].encode()
    nothing, *parts, end = (b"\r\n" + body).split(b"\r\n" + delimiter)
    assert (nothing, end.strip()) == (b"", b"--"), body
    assert all(each.startswith(b"\r\n") for each in parts), body
    return [each.removeprefix(b"\r\n") for each in parts]


def _answer(written: bytes) -> PartAnswer:
    headers, content = _head(written)
    assert headers["content-type"] == "application/http"
    status_line, _, rest = content.partition(b"\r\n")
    version, status, reason = status_line.decode().split(" ", 2)
    assert (version, bool(reason)) == ("HTTP/1.1", True)
    inner, body = _head(rest)
    return PartAnswer(int(status), inner, body)


def _head(written: bytes) -> tuple[dict[str, str], bytes]:
    head, blank, body = written.partition(b"\r\n\r\n")
    assert blank, written
    pairs = [line.split(": ", 1) for line in head.decode().split("\r\n")]
    return {name.lower(): value for name, value in pairs}, body
