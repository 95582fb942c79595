"""Open handles, listed and closed."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from etagere.model.files import EntryPath
from etagere.opens.handles import Handle, HandlePage
from etagere.opens.share import ShareOpens
from etagere.operations.file.tree import locate_entry
from etagere.protocol.codecs import handles as handle_lists
from etagere.protocol.codecs import xml
from etagere.protocol.file import decode
from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.continuation_tokens import format_token, parse_token
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.listings import UNSENT
from etagere.protocol.rest.requests import (
    bad_parameter,
    invalid_header,
    page_limit,
    required_header,
)
from etagere.protocol.rest.responses import XML, Headers
from etagere.protocol.time_slices import run_in_slices

_ALL: Final = "*"
_HANDLE_ID_MAX: Final = (1 << 64) - 1
_HANDLE_ID_DIGITS_MAX: Final = 20
_CLOSED_AT_ONCE_MAX: Final = 500
"""The maximum number of handles that one request closes: each may delete a file."""
_FAILED_SINCE: Final = "2019-07-07"
"""The first version in which responses contain the number of handles that could not be closed."""


class _Target(NamedTuple):
    """The file or directory that a request is about, and the opens of its share."""

    path: EntryPath
    entry_id: int
    share: ShareOpens | None
    """None: nothing is open."""
    is_recursive: bool

    def page(self, marker: int, limit: int) -> HandlePage:
        if self.share is None:
            return HandlePage([], None)
        return self.share.page(
            self.entry_id,
            marker,
            limit,
            snapshot=self.path.ref.snapshot,
            is_recursive=self.is_recursive,
        )

    def find(self, handle_id: int) -> list[Handle]:
        if self.share is None:
            return []
        handle = self.share.find(
            handle_id,
            self.entry_id,
            snapshot=self.path.ref.snapshot,
            is_recursive=self.is_recursive,
        )
        return [] if handle is None else [handle]


async def _target(exchange: Exchange, deps: FileDependencies) -> _Target:
    path = decode.path_to_read(exchange)
    is_recursive = decode.switch(exchange, "x-ms-recursive")
    located = await deps.engine.read(locate_entry, path)
    entry = located.found(path.components)
    share = deps.opens.find(path.ref.share, located.share_id)
    return _Target(path, entry.id, share, is_recursive)


async def list_handles(exchange: Exchange, deps: FileDependencies) -> Response:
    limit, marker = page_limit(exchange), _marker(exchange)
    page = (await _target(exchange, deps)).page(marker, limit)
    encoded = await run_in_slices(
        handle_lists.encode(page.handles, exchange.version, UNSENT.page_bytes_max())
    )
    following = page.following
    if encoded.handles < len(page.handles):
        following = page.handles[encoded.handles].id
    shown = f"<Entries>{encoded.text}</Entries>" if encoded.text else "<Entries />"
    token = "" if following is None else format_token(str(following))
    content = f"{_echo(exchange)}{shown}{xml.element('NextMarker', token)}"
    return Response(200, [XML], xml.document(f"<EnumerationResults>{content}</EnumerationResults>"))


def _echo(exchange: Exchange) -> str:
    """Returns the elements that repeat the parameters of the request, if they are present."""
    sent = (
        ("MaxResults", exchange.parameter("maxresults")),
        ("Marker", exchange.parameter("marker")),
    )
    return "".join(xml.element(tag, value) for tag, value in sent if value is not None)


async def force_close_handles(exchange: Exchange, deps: FileDependencies) -> Response:
    handle_id, marker = _handle_id(exchange), _marker(exchange)
    target = await _target(exchange, deps)
    if handle_id is None:
        page = target.page(marker, _CLOSED_AT_ONCE_MAX)
    else:
        page = HandlePage(target.find(handle_id), None)
    if target.share is not None:
        deletions = target.share.force_close(page.handles)
        if deletions:
            await asyncio.wait(deletions)
    headers: Headers = [(b"x-ms-number-of-handles-closed", b"%d" % len(page.handles))]
    if exchange.version >= _FAILED_SINCE:
        headers.append((b"x-ms-number-of-handles-failed", b"0"))
    if page.following is not None:
        headers.append((b"x-ms-marker", format_token(str(page.following)).encode()))
    return Response(200, headers)


def _handle_id(exchange: Exchange) -> int | None:
    """Returns the ID of the handle to close; None: all handles."""
    written = required_header(exchange, "x-ms-handle-id")
    if written == _ALL:
        return None
    handle_id = _parse_id(written)
    if handle_id is None:
        raise invalid_header("x-ms-handle-id", written)
    return handle_id


def _marker(exchange: Exchange) -> int:
    """Returns the ID of the first handle of the page; 0 for the first page."""
    written = exchange.parameter("marker")
    if not written:
        return 0
    handle_id = _parse_id(parse_token(written) or "")
    if handle_id is None:
        raise bad_parameter("InvalidQueryParameterValue", "marker", written)
    return handle_id


def _parse_id(written: str) -> int | None:
    if not (written.isascii() and written.isdigit() and len(written) <= _HANDLE_ID_DIGITS_MAX):
        return None
    handle_id = int(written)
    return handle_id if handle_id <= _HANDLE_ID_MAX else None
