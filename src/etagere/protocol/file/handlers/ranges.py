"""Ranges of files: written, cleared and listed."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable
from typing import Final

from msgspec.structs import replace

from etagere.config import KIB
from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.bodies import Body
from etagere.model.files import Entry, EntryPath, FileRanges, PutRange
from etagere.model.ids import new_id
from etagere.operations.file import ranges
from etagere.protocol.codecs import range_lists
from etagere.protocol.file import access, decode, decode_ranges
from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.file.encode import ENCRYPTED
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import checksums, requests, uploads
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.responses import XML, Headers, stamp_headers
from etagere.protocol.time_slices import run_in_slices
from etagere.rules.dates import format_instant
from etagere.rules.file_ranges import cleared_range
from etagere.rules.opens import RestAccess

_MD5_BYTES_MAX: Final = 256 * KIB
"""The response to a longer range has the CRC64 instead of the MD5, unless the client sent an MD5:
computing it takes more time than everything else."""
_WRITE_TIME_SINCE: Final = "2021-06-08"
"""The first version in which responses to writes contain the last write time."""


async def put_range(exchange: Exchange, deps: FileDependencies) -> Response:
    if decode_ranges.is_clear(exchange):
        return await _clear_range(exchange, deps)
    length = uploads.announced_length(exchange, decode_ranges.RANGE_BYTES_MAX)
    start, end = decode_ranges.range_to_change(exchange)
    if length != end - start:
        raise requests.invalid_header("Content-Length", str(length))
    command = decode_ranges.put_range(exchange, start, Body(b"", length, 0), new_id())
    if length > uploads.PRECHECK_BYTES_MIN:
        await precheck_range(deps, command)
    sent_crc = checksums.announced_crc64(exchange)
    wants_md5 = length <= _MD5_BYTES_MAX or checksums.announced_md5(exchange) is not None
    async with deps.store.writer(length, inline=False, md5=wants_md5) as writer:
        body = await uploads.receive(exchange, writer)
        checksums.require_intact(exchange, body, writer.md5 if wants_md5 else None)
        command = replace(command, body=body)
        entry = await access.write(exchange, deps, RestAccess.WRITE, ranges.put_range, command)
    headers = range_headers(exchange, entry)
    if wants_md5:
        headers.append(checksums.md5_header(writer.md5))
    if sent_crc is not None or not wants_md5:
        headers.append(checksums.crc64_header(body.crc))
    return Response(201, [*headers, *uploads.structured_headers(exchange), ENCRYPTED])


async def precheck_range(deps: FileDependencies, command: PutRange) -> None:
    """Refuses, before an upload, what would be refused if the upload ended now."""
    try:
        await deps.engine.read(ranges.precheck_range, command)
    except Refused:
        # The file may be longer than the ledger says. Uploads do not store what others write unless
        # they need it.
        await deps.opens.flush_share(command.path.ref.share)
        await deps.engine.read(ranges.precheck_range, command)


async def _clear_range(exchange: Exchange, deps: FileDependencies) -> Response:
    if exchange.http.body.length:
        raise requests.invalid_header("Content-Length", str(exchange.http.body.length))
    if exchange.header("content-md5") is not None:
        # There are no bytes for the checksum.
        raise Refused(Refusal("UnsupportedHeader", {"HeaderName": "Content-MD5"}))
    command = decode_ranges.clear_range(exchange, new_id())
    zeros_length = cleared_range(command.start, command.end).zeros_length
    async with contextlib.AsyncExitStack() as stack:
        if zeros_length:
            writer = await stack.enter_async_context(deps.store.writer(zeros_length, inline=False))
            await writer.append(bytes(zeros_length))
            command = replace(command, zeros=await writer.seal())
        entry = await access.write(exchange, deps, RestAccess.WRITE, ranges.clear_range, command)
    return Response(201, range_headers(exchange, entry))


def range_headers(exchange: Exchange, entry: Entry) -> Headers:
    """Returns the headers that describe a file after a write to a range."""
    headers = stamp_headers(entry.stamp)
    if exchange.version >= _WRITE_TIME_SINCE:
        written = format_instant(entry.times.written).encode()
        headers.append((b"x-ms-file-last-write-time", written))
    return headers


async def list_ranges(exchange: Exchange, deps: FileDependencies) -> Response:
    command = decode_ranges.list_ranges(exchange)

    def run(path: EntryPath) -> Awaitable[FileRanges]:
        return deps.engine.read_in_thread(
            ranges.list_ranges,
            replace(command, ask=replace(command.ask, path=path)),
            exchange.read_class("list_ranges"),
        )

    seconds_max = decode.wait_seconds(exchange)
    listed = await deps.opens.rest(command.ask.path, RestAccess.READ, run, seconds_max=seconds_max)
    paged = exchange.version >= decode_ranges.RANGES_PAGED_SINCE
    if listed.following is not None and not paged:
        # Clients that do not support markers would take these for all ranges.
        raise Refused(Refusal("OutOfRangeInput", {"Maximum": command.limit}))
    headers = [XML, *stamp_headers(listed.entry.stamp)]
    headers.append((b"x-ms-content-length", b"%d" % listed.length))
    with_marker = paged and decode_ranges.asks_for_page(exchange)
    body = await run_in_slices(range_lists.encode(listed, with_marker=with_marker))
    return Response(200, headers, body)
