"""A raw HTTP client with its own implementation of the signing schemes.

A request is a value whose text stands for bytes, so that it can be malformed in ways that no
library allows. Answers are parsed strictly: what is not HTTP raises `NotHttp`.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from email.utils import formatdate
from typing import BinaryIO, Final, NamedTuple, cast
from urllib.parse import quote, unquote, unquote_plus, urlsplit
from xml.etree import ElementTree

VERSION: Final = "2021-12-02"
SECONDS_MAX: Final = 5.0

Pairs = tuple[tuple[str, str], ...]


# Requests


@dataclass(frozen=True)
class Request:
    """A request; `path` and `query` are percent-encoded already."""

    method: str
    path: str
    query: Pairs = ()
    headers: Pairs = ()
    body: bytes = b""

    @property
    def target(self) -> str:
        query = "&".join(f"{name}={value}" for name, value in self.query)
        return f"{self.path}?{query}" if query else self.path

    def header(self, name: str) -> str | None:
        """The value as it is signed: stripped, and joined if there are several."""
        values = [value.strip(" \t") for key, value in self.headers if key.lower() == name]
        return ",".join(values) if values else None

    def having(self, *headers: tuple[str, str]) -> Request:
        """Adds headers, even if there are some of the same name."""
        return replace(self, headers=(*self.headers, *headers))

    def lacking(self, name: str) -> Request:
        others = tuple(pair for pair in self.headers if pair[0].lower() != name.lower())
        return replace(self, headers=others)

    def setting(self, name: str, value: str) -> Request:
        return self.lacking(name).having((name, value))

    def asking(self, *parameters: tuple[str, str]) -> Request:
        return replace(self, query=(*self.query, *parameters))

    def asking_not(self, name: str) -> Request:
        return replace(self, query=tuple(pair for pair in self.query if pair[0] != name))

    def framed(self) -> Request:
        """Adds Content-Length, which is signed, unless the request has its own framing."""
        names = {name.lower() for name, _ in self.headers}
        if (not self.body and self.method != "PUT") or names & {
            "content-length",
            "transfer-encoding",
        }:
            return self
        return self.having(("Content-Length", str(len(self.body))))

    def raw(self) -> bytes:
        names = {name.lower() for name, _ in self.headers}
        host = () if "host" in names else (("Host", "127.0.0.1"),)
        lines = [f"{self.method} {self.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in (*host, *self.headers)]
        return octets("\r\n".join([*lines, "", ""])) + self.body


def octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def encoded(parameters: Iterable[tuple[str, str]]) -> Pairs:
    return tuple((name, quote(value, safe="")) for name, value in parameters)


# Signatures

Signer = Callable[[Request], Request]

_SIGNED_HEADERS: Final = (
    "content-encoding", "content-language", "content-length", "content-md5", "content-type",
    "date", "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range",
)  # fmt: skip


def hmac_sha256(key: str, text: str) -> str:
    return base64.b64encode(hmac.digest(base64.b64decode(key), octets(text), "sha256")).decode()


def dated(request: Request) -> Request:
    """Adds the date that every signed request has, unless there is one."""
    request = request.framed()
    if request.header("x-ms-date") is None and request.header("date") is None:
        return request.having(("x-ms-date", http_date()))
    return request


def http_date(seconds: float = 0.0) -> str:
    return formatdate(time.time() + seconds, usegmt=True)


def shared_key(account: str, key: str) -> Signer:
    def sign(request: Request) -> Request:
        request = dated(request)
        lines = [request.method]
        for name in _SIGNED_HEADERS:
            value = request.header(name) or ""
            unsigned = (name == "content-length" and value == "0") or (
                name == "date" and request.header("x-ms-date") is not None
            )
            lines.append("" if unsigned else value)
        text = "\n".join(lines) + "\n" + _canonical_headers(request)
        text += f"/{account}{request.path}{_canonical_query(request.query)}"
        return request.having(("Authorization", f"SharedKey {account}:{hmac_sha256(key, text)}"))

    return sign


def shared_key_lite(account: str, key: str) -> Signer:
    def sign(request: Request) -> Request:
        request = dated(request)
        date = "" if request.header("x-ms-date") is not None else request.header("date") or ""
        lines = [request.method, request.header("content-md5") or ""]
        lines += [request.header("content-type") or "", date]
        comp = _values(request.query).get("comp")
        text = "\n".join(lines) + "\n" + _canonical_headers(request) + f"/{account}{request.path}"
        text += "" if comp is None else f"?comp={','.join(sorted(comp))}"
        signature = hmac_sha256(key, text)
        return request.having(("Authorization", f"SharedKeyLite {account}:{signature}"))

    return sign


def table_shared_key(account: str, key: str) -> Signer:
    """Shared Key of the table service, which signs neither headers nor the length."""

    def sign(request: Request) -> Request:
        request = dated(request)
        lines = [request.method, request.header("content-md5") or ""]
        lines += [request.header("content-type") or "", _date(request)]
        signature = hmac_sha256(key, "\n".join([*lines, _table_resource(account, request)]))
        return request.having(("Authorization", f"SharedKey {account}:{signature}"))

    return sign


def table_shared_key_lite(account: str, key: str) -> Signer:
    """Shared Key Lite of the table service, which signs the date and the resource."""

    def sign(request: Request) -> Request:
        request = dated(request)
        text = f"{_date(request)}\n{_table_resource(account, request)}"
        return request.having(
            ("Authorization", f"SharedKeyLite {account}:{hmac_sha256(key, text)}")
        )

    return sign


def _date(request: Request) -> str:
    return request.header("x-ms-date") or request.header("date") or ""


def _table_resource(account: str, request: Request) -> str:
    comp = dict(request.query).get("comp")
    return f"/{account}{request.path}" + (f"?comp={comp}" if comp is not None else "")


def _canonical_headers(request: Request) -> str:
    names = {name.lower() for name, _ in request.headers}
    return "".join(
        f"{name}:{request.header(name)}\n" for name in sorted(names) if name.startswith("x-ms-")
    )


def _values(query: Pairs) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for written, value in query:
        name = unquote_plus(written, errors="surrogateescape").lower()
        decode = unquote if name == "where" else unquote_plus
        values.setdefault(name, []).append(decode(value, errors="surrogateescape"))
    return values


def _canonical_query(query: Pairs) -> str:
    values = _values(query)
    return "".join(f"\n{name}:{','.join(sorted(values[name]))}" for name in sorted(values))


# Answers


class NotHttp(Exception):
    """The server sent bytes that are no HTTP response, or none."""


_ODATA_CODE: Final = re.compile(rb'\{"odata\.error":\{"code":"([A-Za-z0-9]+)"')


class Answer(NamedTuple):
    """A status, headers by their names in lower case, and a body."""

    status: int
    headers: dict[str, str]
    body: bytes
    reason: str = ""

    @property
    def code(self) -> str:
        """The error code, from the header or, for tables, from the body."""
        code = self.headers.get("x-ms-error-code", "")
        if not code and (named := _ODATA_CODE.match(self.body)):
            code = named[1].decode()
        return code

    def error(self) -> dict[str, str]:
        """The elements of an XML error body, or an empty dictionary."""
        try:
            root = ElementTree.fromstring(self.body)
        except ElementTree.ParseError:
            return {}
        return {child.tag: child.text or "" for child in root} if root.tag == "Error" else {}


_STATUS_LINE: Final = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2}) ([ -~]*)\r\n")
_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([\t -~\x80-\xff]*)\r\n")


def read_answer(stream: BinaryIO, method: str) -> Answer | None:
    """Reads the next answer; None at the end of the connection."""
    line = stream.readline()
    if not line:
        return None
    status_line = _STATUS_LINE.fullmatch(line)
    if status_line is None:
        raise NotHttp(f"status line {line!r}")
    status, reason = int(status_line[1]), status_line[2].decode()
    headers: dict[str, str] = {}
    while (line := stream.readline()) != b"\r\n":
        field = _FIELD.fullmatch(line)
        if field is None:
            raise NotHttp(f"header {line!r}")
        name = field[1].decode().lower()
        value = field[2].decode("utf-8", "surrogateescape")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    if status == 100:
        return read_answer(stream, method)
    if method == "HEAD" or status in {204, 304}:
        return Answer(status, headers, b"", reason)
    if ("content-length" in headers) == (headers.get("transfer-encoding") == "chunked"):
        raise NotHttp(f"no length, or two, in {headers}")
    if "content-length" in headers:
        body = _exactly(stream, int(headers["content-length"]))
    else:
        body = b"".join(_chunks(stream))
    return Answer(status, headers, body, reason)


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    while size := int(stream.readline(), 16):
        yield _exactly(stream, size)
        _end_of_line(stream)
    _end_of_line(stream)


def _exactly(stream: BinaryIO, length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise NotHttp(f"{len(data)} bytes instead of {length}")
    return data


def _end_of_line(stream: BinaryIO) -> None:
    if (line := stream.readline()) != b"\r\n":
        raise NotHttp(f"{line!r} instead of the end of a line")


# Connections


class Client:
    """A persistent connection, opened on demand."""

    def __init__(self, endpoint: str) -> None:
        split = urlsplit(endpoint)
        self._address = (split.hostname or "", split.port or 0)
        self._socket: socket.socket | None = None
        self._stream: BinaryIO | None = None

    def ask(self, request: Request) -> Answer:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, SECONDS_MAX)
            self._stream = cast("BinaryIO", self._socket.makefile("rb"))
        assert self._stream is not None
        try:
            with contextlib.suppress(ConnectionError):
                # A server that refuses early may close before all is sent, and has answered.
                self._socket.sendall(request.raw())
            answer = read_answer(self._stream, request.method)
        except BaseException:
            self.close()
            raise
        if answer is None:
            self.close()
            raise NotHttp("closed without an answer")
        if answer.headers.get("connection") == "close":
            self.close()
        return answer

    def send_bytes(self, data: bytes, method: str = "") -> list[Answer]:
        """Sends bytes on a new connection, closes the sending half, and returns all answers.

        The answers are read as those to requests with this `method`.
        """
        with socket.create_connection(self._address, SECONDS_MAX) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            answers = []
            with connection.makefile("rb") as stream:
                while (answer := read_answer(cast("BinaryIO", stream), method)) is not None:
                    answers.append(answer)
            return answers

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        if self._socket is not None:
            self._socket.close()
        self._socket = self._stream = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def md5(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
