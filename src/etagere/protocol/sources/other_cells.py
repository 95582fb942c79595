"""Sources in other cells: read as a client would read them, from a node of that cell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus

from etagere.auth.request import octets, text
from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.protocol.http.ranges import Range
from etagere.protocol.relay.connections import Sender
from etagere.protocol.relay.relaying import FetchedResponse
from etagere.protocol.rest.cells import Cells
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.sources.addresses import SourceAddress
from etagere.protocol.sources.lookup import SOURCE_TRAILING_DOT
from etagere.protocol.sources.remote import RemoteSource, failed, metadata_of

_ALLOW_TRAILING_DOT = "x-ms-allow-trailing-dot"


async def fetch(
    cells: Cells,
    cell: str,
    address: SourceAddress,
    asking: Exchange,
    conditions: Mapping[str, str],
    asked: Range | None,
    bytes_max: int | None,
    seconds_max: float | None,
) -> RemoteSource:
    """Returns the response to `asking`, the request for a source, once its head has arrived. Raises
    `Refused` if it has no bytes, or too many, or while its account moves, and `Fault` if no node of
    the cell responds."""
    request = asking.request
    headers = {**request.fields, "x-ms-version": asking.version, **conditions}
    allows_trailing_dot = headers.pop(SOURCE_TRAILING_DOT, None)
    if allows_trailing_dot is not None:
        headers[_ALLOW_TRAILING_DOT] = allows_trailing_dot
    if asked is not None:
        headers["range"] = f"bytes={asked.start}-{'' if asked.end is None else asked.end}"
    lines = [f"GET {address.path}?{address.query} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    sender = Sender(request.service, request.client, request.scheme == "https")
    try:
        async with asyncio.timeout(seconds_max):
            fetched = await cells.relay.fetch(cell, sender, octets("\r\n".join([*lines, "", ""])))
    except TimeoutError as error:
        raise failed(address.authority, error) from None
    if fetched.head.status == HTTPStatus.SERVICE_UNAVAILABLE:
        fetched.close()
        cells.expire(request.account)
        raise Refused(Refusal("ServerBusy"))
    fields = {text(name).lower(): text(value) for name, value in fetched.head.headers}
    if fetched.head.length is not None:
        fields["content-length"] = str(fetched.head.length)
    source = RemoteSource(
        address,
        fetched.head.status,
        fields,
        metadata_of((text(name), text(value)) for name, value in fetched.head.headers),
        _received(address, fetched, seconds_max),
        fetched.close,
        bytes_max,
    )
    try:
        source.require_bytes(asked)
    except BaseException:
        fetched.close()
        raise
    return source


async def _received(
    address: SourceAddress, fetched: FetchedResponse, seconds_max: float | None
) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async for chunk in fetched.chunks():
            if seconds_max is not None and loop.time() - began > seconds_max:
                raise TimeoutError
            yield chunk
    except OSError as error:
        raise failed(address.authority, error) from None
