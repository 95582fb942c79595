"""The access log: one line per response.

Lines are formatted here and written a few times a second. A call of the logging module, with a
system call in it, for each of them would cost as much as half of a small read.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from etagere.auth.principal import Anonymous, KeyOwner, Principal, TokenHolder, User
from etagere.protocol.http.messages import Request, Response
from etagere.telemetry.context import NO_REQUEST
from etagere.telemetry.formats import fields, printable, text_process_name
from etagere.telemetry.logs import write_lines

if TYPE_CHECKING:
    from etagere.protocol.rest.exchange import Exchange

logger = logging.getLogger(__name__)

NAME: Final = "etagere.access"
_FLUSH_SECONDS = 0.1
_LINES_MAX = 1_000
_CLIENT_REQUEST_ID_CHARACTERS_MAX = 256
_ACCOUNT_CHARACTERS_MAX = 64
_ERROR_STATUS_MIN = 400
# In the path if a client has encoded the question mark, too.
_SIGNATURE = re.compile(r"(sig(?:=|%3d))[^&/\s]*", re.IGNORECASE)


class AccessEntry(msgspec.Struct, omit_defaults=True):
    """A line of the access log, in JSON."""

    time: str
    level: str
    logger: str
    process: str
    pid: int
    message: str
    request_id: str
    client: str
    method: str
    path: str
    """Without the query, which may contain a signature."""
    status: int
    milliseconds: float
    """From the head of the request to the end of the response."""
    server_milliseconds: float
    """From the end of the request's body to the beginning of the response."""
    bytes_in: int
    bytes_out: int
    operation: str = ""
    error_code: str = ""
    account: str = ""
    principal: str = ""
    """How the request was authorized; empty: it was not."""
    user: str = ""
    """The object ID of the user."""
    correlation_id: str = ""
    """That of the shared access signature."""
    client_request_id: str = ""


class AccessLog:
    """The access log of one front end. Lines that a killed process has not written are lost."""

    def __init__(
        self,
        log_format: str | None = None,
        process_name: str = "",
        slow_seconds: float = math.inf,
        write: Callable[[Sequence[bytes]], None] = write_lines,
    ) -> None:
        """`log_format` is `text` or `json`; None: no responses are logged. Requests that took
        longer than `slow_seconds` are logged in any case."""
        self._slow_seconds = slow_seconds
        self._add = {None: None, "text": self._text, "json": self._json}[log_format]
        self._process_name = process_name
        self._pid = os.getpid()
        self._text_mark = f"Z INFO {text_process_name(process_name)}[{self._pid}] {NAME} ["
        self._write = write
        self._second = 0
        self._second_text = ""
        self._lines: list[bytes] = []

    def add(
        self, request: Request, response: Response, seconds: float, exchange: Exchange | None
    ) -> None:
        """Adds a line; `exchange` is None if the request was not understood."""
        if request.server_seconds > self._slow_seconds:
            _log_slow(request, response, exchange)
        if self._add is None:
            return
        if not self._lines:
            loop = asyncio.get_running_loop()
            loop.call_later(_FLUSH_SECONDS, self.flush, context=NO_REQUEST)
        self._lines.append(self._add(request, response, seconds, exchange))
        if len(self._lines) >= _LINES_MAX:
            self.flush()

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        if lines:
            self._write(lines)

    def _time(self) -> str:
        """Returns the time without the letter for UTC."""
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second = second
            self._second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._second_text}.{int(1_000 * (now - second)):03d}"

    def _text(
        self, request: Request, response: Response, seconds: float, exchange: Exchange | None
    ) -> bytes:
        line = (
            f"{self._time()}{self._text_mark}{exchange.request_id if exchange else '-'}]: "
            f"{request.client} {request.method} {_path(request)} {response.status} "
            f"{1000 * seconds:.1f} ms "
            f"in={request.body.received} out={_bytes_out(request, response)}"
        )
        if response.status >= _ERROR_STATUS_MIN and (code := _error_code(response)):
            line = f"{line} error={code}"
        if exchange is not None:
            kind, user, correlation_id = _describe_principal(exchange)
            line = f"{line} operation={exchange.operation} principal={kind or '-'}"
            if user:
                line = f"{line} user={_word(user)}"
            if correlation_id:
                line = f"{line} correlation_id={_word(correlation_id)}"
            if client_id := _client_request_id(exchange):
                line = f"{line} client_request_id={_word(client_id)}"
        return line.encode("utf-8", "backslashreplace")

    def _json(
        self, request: Request, response: Response, seconds: float, exchange: Exchange | None
    ) -> bytes:
        status = response.status
        entry = AccessEntry(
            f"{self._time()}Z",
            "INFO",
            NAME,
            self._process_name,
            self._pid,
            "request",
            exchange.request_id if exchange else "",
            request.client,
            request.method,
            _path(request),
            status,
            round(1_000 * seconds, 3),
            round(1_000 * request.server_seconds, 3),
            request.body.received,
            _bytes_out(request, response),
        )
        if status >= _ERROR_STATUS_MIN:
            entry.error_code = _error_code(response)
        if exchange is not None:
            entry.operation = exchange.operation
            entry.account = printable(exchange.request.account, _ACCOUNT_CHARACTERS_MAX)
            entry.principal, entry.user, entry.correlation_id = _describe_principal(exchange)
            entry.client_request_id = _client_request_id(exchange)
        return msgspec.json.encode(entry)


def _log_slow(request: Request, response: Response, exchange: Exchange | None) -> None:
    logger.warning(
        "a request took %.3f s: %s %s",
        request.server_seconds,
        request.method,
        _path(request),
        extra=fields(
            operation=exchange.operation if exchange else "",
            status=response.status,
            bytes_in=request.body.received,
        ),
    )


def _path(request: Request) -> str:
    path = printable(request.target.partition(b"?")[0].decode("utf-8", "backslashreplace"))
    return _SIGNATURE.sub(r"\1…", path) if "sig" in path.lower() else path


def _bytes_out(request: Request, response: Response) -> int:
    """Returns the length of the body of a response; 0 if it was not known beforehand."""
    if request.method == "HEAD":
        return 0
    if response.length is not None:
        return response.length
    return len(response.body) if isinstance(response.body, bytes) else 0


def _error_code(response: Response) -> str:
    for name, value in response.headers:
        if name == b"x-ms-error-code":
            return value.decode("ascii", "replace")
    return ""


def _describe_principal(exchange: Exchange) -> tuple[str, str, str]:
    """Returns the kind of the sender of a request, the ID of the user and the correlation ID of the
    token."""
    principal: Principal | None = getattr(exchange, "principal", None)
    match principal:
        case KeyOwner():
            return "key", "", ""
        case TokenHolder():
            user = printable(principal.delegating_user)
            return f"{principal.kind.value}_sas", user, printable(principal.correlation_id)
        case User():
            return "user", printable(principal.object_id), ""
        case Anonymous():
            return "anonymous", "", ""
    return "", "", ""


def _client_request_id(exchange: Exchange) -> str:
    written = exchange.request.fields.get("x-ms-client-request-id", "")
    return printable(written, _CLIENT_REQUEST_ID_CHARACTERS_MAX) if written else ""


def _word(text: str) -> str:
    """Returns the value of a field in a text line."""
    return text.replace(" ", "\\x20")
