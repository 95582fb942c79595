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
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from etagere.auth.principal import Anonymous, KeyOwner, Principal, TokenHolder, User
from etagere.protocol.http.messages import Request, Response
from etagere.telemetry.context import no_request
from etagere.telemetry.formats import (
    TEXT_CHARACTERS_MAX,
    fields,
    printable,
    text_process_name,
)
from etagere.telemetry.logs import write_to_standard_error

if TYPE_CHECKING:
    from etagere.protocol.rest.exchange import Exchange

logger = logging.getLogger(__name__)

NAME: Final = "etagere.access"
_FLUSH_SECONDS = 0.1
_LINES_MAX = 1_000
_CLIENT_REQUEST_ID_MAX = 256
_ACCOUNT_MAX = 64
_ERROR_STATUS_MIN = 400
# In the path if a client has encoded the question mark, too.
_SIGNATURE = re.compile(r"(sig(?:=|%3d))[^&/\s]*", re.IGNORECASE)


class AccessEntry(msgspec.Struct, omit_defaults=True):
    """The fields of a JSON line that differ between requests, except the time."""

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
    account: str = ""
    principal: str = ""
    """How the request was authorized; empty: it was not."""
    client_request_id: str = ""
    error_code: str = ""
    user: str = ""
    """The object ID of the user."""
    correlation_id: str = ""
    """That of the shared access signature."""


_encode_entry = msgspec.json.Encoder().encode


_KINDS: Final[Mapping[type, str]] = {KeyOwner: "key", Anonymous: "anonymous"}


class AccessLog:
    """The access log of one front end. Lines that a killed process has not written are lost."""

    def __init__(
        self,
        log_format: str | None = None,
        process_name: str = "",
        slow_seconds: float = math.inf,
        write: Callable[[bytes], None] = write_to_standard_error,
    ) -> None:
        """`log_format` is `text` or `json`; None: no responses are logged. Requests that took
        longer than `slow_seconds` are logged in any case. `write` is called with whole lines."""
        self._slow_seconds = slow_seconds
        self._format = {None: None, "text": self._text, "json": self._json}[log_format]
        pid = os.getpid()
        self._text_mark = f"Z INFO {text_process_name(process_name)}[{pid}] {NAME} ["
        constant = {
            "level": "INFO",
            "logger": NAME,
            "process": process_name,
            "pid": pid,
            "message": "request",
        }
        self._json_mark = f'Z",{msgspec.json.encode(constant).decode()[1:-1]},'
        self._write = write
        self._sender: Principal | None = None
        self._sender_text = "-", ""
        self._millisecond = 0
        self._second_text = ""
        self._time_text = ""
        self._lines: list[str] = []

    def add(
        self, request: Request, response: Response, seconds: float, exchange: Exchange | None
    ) -> None:
        """Adds a line; `exchange` is None if the request was not understood."""
        if request.server_seconds > self._slow_seconds:
            _log_slow(request, response, exchange)
        if self._format is None:
            return
        now = int(1_000 * time.time())
        if now != self._millisecond:
            self._set_time(now)
        lines = self._lines
        if not lines:
            loop = asyncio.get_running_loop()
            loop.call_later(_FLUSH_SECONDS, self.flush, context=no_request())
        lines.append(self._format(request, response, seconds, exchange))
        if len(lines) >= _LINES_MAX:
            self.flush()

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        if lines:
            lines.append("")
            self._write("\n".join(lines).encode())

    def _set_time(self, now: int) -> None:
        """Sets the time of the next lines, which is written without the letter for UTC."""
        second, millisecond = divmod(now, 1_000)
        if second != self._millisecond // 1_000:
            self._second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        self._millisecond = now
        self._time_text = f"{self._second_text}.{millisecond:03d}"

    def _text(
        self, request: Request, response: Response, seconds: float, exchange: Exchange | None
    ) -> str:
        # Written out, because it is run for each request: calls would cost more than the rest.
        status, body = response.status, response.body
        length = len(body) if body.__class__ is bytes else _bytes_out(request, response)
        if exchange is None:
            request_id, operation, path, kind, more = "-", "-", _path(request.target), "-", ""
        else:
            request_id, operation = exchange.request_id, exchange.operation
            path = exchange.request.path
            if len(path) > TEXT_CHARACTERS_MAX or not path.isprintable() or "sig" in path.lower():
                path = _path(request.target)
            principal = getattr(exchange, "principal", None)
            kind, more = _KINDS.get(principal.__class__, ""), ""
            if not kind:
                # Most requests have the token of the one before.
                if principal is not self._sender:
                    self._sender, self._sender_text = principal, _describe_sender(principal)
                kind, more = self._sender_text
            client_id = exchange.request.fields.get("x-ms-client-request-id")
            if client_id is not None:
                more = f"{more} client_request_id={_word(client_id)}"
        if status >= _ERROR_STATUS_MIN:
            more = f"{more} error={_error_code(response)}"
        return (
            f"{self._time_text}{self._text_mark}{request_id}]: "
            f"{request.client} {request.method} {path} {status} "
            f"{1000 * seconds:.1f} ms in={request.body.received} out={length} "
            f"operation={operation} principal={kind}{more}"
        )

    def _json(
        self, request: Request, response: Response, seconds: float, exchange: Exchange | None
    ) -> str:
        status, body = response.status, response.body
        entry = AccessEntry(
            "",
            request.client,
            request.method,
            _path(request.target),
            status,
            round(1_000 * seconds, 3),
            round(1_000 * request.server_seconds, 3),
            request.body.received,
            len(body) if body.__class__ is bytes else _bytes_out(request, response),
        )
        if exchange is not None:
            entry.request_id, entry.operation = exchange.request_id, exchange.operation
            entry.account = printable(exchange.request.account, _ACCOUNT_MAX)
            principal = getattr(exchange, "principal", None)
            entry.principal = _KINDS.get(principal.__class__, "")
            if not entry.principal:
                entry.principal, entry.user, entry.correlation_id = _sender(principal)
            client_id = exchange.request.fields.get("x-ms-client-request-id")
            if client_id is not None:
                entry.client_request_id = printable(client_id, _CLIENT_REQUEST_ID_MAX)
        if status >= _ERROR_STATUS_MIN:
            entry.error_code = _error_code(response)
        members = _encode_entry(entry)[1:].decode()
        return f'{{"time":"{self._time_text}{self._json_mark}{members}'


def _log_slow(request: Request, response: Response, exchange: Exchange | None) -> None:
    logger.warning(
        "a request took %.3f s: %s %s",
        request.server_seconds,
        request.method,
        _path(request.target),
        extra=fields(
            operation=exchange.operation if exchange else "",
            status=response.status,
            bytes_in=request.body.received,
        ),
    )


def _path(target: bytes) -> str:
    path = target.partition(b"?")[0]
    try:
        shown = path.decode()
    except UnicodeDecodeError:
        # A handler of errors would be called for each byte.
        shown = path.decode("latin-1").encode("unicode_escape").decode("ascii")
    if len(shown) > TEXT_CHARACTERS_MAX or not shown.isprintable():
        shown = printable(shown)
    return _SIGNATURE.sub(r"\1…", shown) if b"sig" in path.lower() else shown


def _bytes_out(request: Request, response: Response) -> int:
    """Returns the length of a body that is not bytes; 0 if it was not known beforehand."""
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


def _sender(principal: Principal | None) -> tuple[str, str, str]:
    """Returns the kind of a sender, the ID of the user and the correlation ID of the token."""
    if isinstance(principal, TokenHolder):
        user, correlation_id = principal.delegating_user, principal.correlation_id
        return f"{principal.kind.value}_sas", printable(user), printable(correlation_id)
    if isinstance(principal, User):
        return "user", printable(principal.object_id), ""
    return "", "", ""


def _describe_sender(principal: Principal | None) -> tuple[str, str]:
    """Returns the kind of a sender, and more fields of a text line."""
    kind, user, correlation_id = _sender(principal)
    more = f" user={_word(user)}" if user else ""
    if correlation_id:
        more = f"{more} correlation_id={_word(correlation_id)}"
    return kind or "-", more


def _word(text: str) -> str:
    """Returns the value of a field in a text line."""
    shown = printable(text, _CLIENT_REQUEST_ID_MAX)
    return shown.replace(" ", "\\x20") if " " in shown else shown
