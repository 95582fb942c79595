"""Copies of files and blobs to files, and ranges from URLs.

The bytes of sources in this store are shared, and the copy is synchronous, except that of a blob
with very many pieces. Sources on other servers are read asynchronously.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from msgspec.structs import replace

from etagere.engine.interface import Refused, WriteTxn
from etagere.errors import Refusal
from etagere.model.bodies import Body
from etagere.model.file_copies import (
    AbortFileCopy,
    BeginFileCopy,
    CopyFile,
    CopyToFile,
    FileDestination,
    PutFileCopy,
)
from etagere.model.files import Entry, PutRange
from etagere.model.ids import new_id
from etagere.model.sources import SourceBlob
from etagere.operations.file import copies, inheritance, pending_copies, ranges
from etagere.operations.sources import PIECES_GONE
from etagere.protocol.file import access, decode, decode_copies, decode_ranges
from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.file.encode import ENCRYPTED
from etagere.protocol.file.handlers.ranges import precheck_range, range_headers
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import checksums, leases, uploads
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.ranges import source_range
from etagere.protocol.rest.requests import invalid_header
from etagere.protocol.rest.responses import stamp_headers
from etagere.protocol.sources import requests
from etagere.protocol.sources.opening import COPY, COPY_OF_BYTES, UPLOAD, Source
from etagere.protocol.sources.receiving import ReceivedSource, copied_source, shared_source
from etagere.protocol.sources.remote import RemoteSource, too_large
from etagere.rules.file_ranges import FILE_BYTES_MAX
from etagere.rules.leases import format_lease_id
from etagere.rules.opens import RestAccess

C = TypeVar("C", bound=CopyToFile)
T = TypeVar("T")

_COPIED_AT_ONCE_BYTES_MAX = 16 << 20
"""The bytes of longer sources are copied after the response."""
_MISSING: Final = ("ResourceNotFound", "ParentNotFound", "ShareNotFound")


# Copies


async def copy_file(exchange: Exchange, deps: FileDependencies) -> Response:
    asked = await decode_copies.destination(exchange, deps.engine)
    try:
        source = await deps.sources.open(exchange, COPY, bytes_max=FILE_BYTES_MAX)
    except Refused as refused:
        direct = requests.direct_refusal(exchange, refused.refusal, _MISSING)
        raise (refused if direct is None else Refused(direct)) from None
    asked = replace(asked, source=source.address)
    if isinstance(source, RemoteSource):
        return _accepted(await _begin_copy(exchange, deps, asked, source))
    async with source:
        if isinstance(source.found, SourceBlob):
            decode_copies.require_file_source(exchange)
        command = CopyFile(asked, source.found)
        entry = await _write_copy(exchange, deps, copies.copy_file, command)
        if entry is None:
            entry = await _copy_bytes(exchange, deps, asked)
    return _accepted(entry)


async def _copy_bytes(exchange: Exchange, deps: FileDependencies, asked: FileDestination) -> Entry:
    """Copies the bytes of a blob of this store that cannot be shared."""
    source = await deps.sources.open(exchange, COPY_OF_BYTES, bytes_max=FILE_BYTES_MAX)
    if (source.length or 0) > _COPIED_AT_ONCE_BYTES_MAX:
        return await _begin_copy(exchange, deps, asked, source)
    async with source:
        await deps.engine.read(copies.precheck_file_copy, asked)
        async with deps.store.writer(source.length, inline=False) as writer:
            body = await uploads.receive_source(source.chunks(), writer)
            command = PutFileCopy(asked, body, source.headers, source.metadata)
            return await _write_copy(exchange, deps, copies.put_file_copy, command)


async def _begin_copy(
    exchange: Exchange, deps: FileDependencies, asked: FileDestination, source: Source
) -> Entry:
    """Starts an asynchronous copy, which closes its source."""
    try:
        decode_copies.require_file_source(exchange)
        command = BeginFileCopy(
            asked,
            source.length or 0,
            source.headers,
            source.metadata,
            deps.copying.process,
        )
        # The MD5 of a blob of this store is what its client has set.
        md5 = command.headers.content_md5 if isinstance(source, RemoteSource) else None
        with deps.copying.reserve(asked.copy_id):
            begun = await _write_copy(exchange, deps, pending_copies.begin_file_copy, command)
            deps.copying.start(begun.copy_ref, source, md5)
    except BaseException:
        await source.close()
        raise
    return begun.entry


async def _write_copy(
    exchange: Exchange,
    deps: FileDependencies,
    operation: Callable[[WriteTxn, C], T],
    command: C,
) -> T:
    """Creates or replaces the destination when its open handles allow it."""
    destination = command.destination.path
    share = destination.ref.share
    return await deps.opens.rest(
        destination,
        RestAccess.REPLACE,
        lambda path: inheritance.write(
            deps.engine, share, operation, command.at(path), exchange.request.client
        ),
        seconds_max=decode.wait_seconds(exchange),
    )


async def abort_copy_file(exchange: Exchange, deps: FileDependencies) -> Response:
    copy_id = requests.aborted_copy(exchange)
    command = AbortFileCopy(decode.path_to_change(exchange), copy_id, leases.lease_id(exchange))
    await access.write(exchange, deps, RestAccess.QUERY, pending_copies.abort_file_copy, command)
    deps.copying.cancel(copy_id)
    return Response(204)


def _accepted(entry: Entry) -> Response:
    copied = copies.copied_of(entry)
    headers = stamp_headers(entry.stamp)
    headers += [
        (b"x-ms-copy-id", format_lease_id(copied.id).encode()),
        (b"x-ms-copy-status", copied.status.value.encode()),
    ]
    return Response(202, headers)


# Ranges


async def put_range_from_url(exchange: Exchange, deps: FileDependencies) -> Response:
    uploads.require_no_body(exchange)
    if decode_ranges.is_clear(exchange):
        # No bytes have to be read for it.
        raise invalid_header("x-ms-write", "clear")
    start, end = decode_ranges.range_to_change(exchange)
    length = end - start
    bytes_max = uploads.bytes_max(exchange, decode_ranges.RANGE_BYTES_MAX)
    if length > bytes_max:
        raise too_large(bytes_max)
    asked = source_range(exchange)
    if asked is not None and asked.end is not None and asked.end + 1 - asked.start != length:
        raise invalid_header("x-ms-source-range", exchange.header("x-ms-source-range") or "")
    command = decode_ranges.put_range(exchange, start, Body(b"", length, 0), new_id())
    expected = decode_copies.source_checksums(exchange)
    precheck = partial(precheck_range, deps, command)
    async with await deps.sources.open(
        exchange, UPLOAD, bytes_max=bytes_max, precheck=precheck
    ) as source:
        if source.length not in (None, length):
            raise Refused(Refusal("InvalidRange", {"ContentLength": source.length or 0}))
        received, entry = await _put_range(exchange, deps, command, source, expected)
    headers = range_headers(exchange, entry)
    return Response(201, [*headers, checksums.crc64_header(received.body.crc), ENCRYPTED])


async def _put_range(
    exchange: Exchange,
    deps: FileDependencies,
    command: PutRange,
    source: Source,
    expected: checksums.SourceChecksums,
) -> tuple[ReceivedSource, Entry]:
    """Writes the bytes of the source: shared if it still has them, otherwise copied."""
    shared = await shared_source(deps.engine, source, expected)
    if shared is not None:
        whole = replace(command, body=shared.body, borrowed=True)
        try:
            entry = await access.write(
                exchange, deps, RestAccess.WRITE, copies.put_shared_range, whole
            )
            return shared, entry
        except Refused as refused:
            if refused.refusal.code != PIECES_GONE:
                raise
    async with copied_source(exchange, deps.store, source, expected) as received:
        if received.body.length != command.body.length:
            raise Refused(Refusal("InvalidRange", {"ContentLength": received.body.length}))
        whole = replace(command, body=received.body)
        entry = await access.write(exchange, deps, RestAccess.WRITE, ranges.put_range, whole)
        return received, entry
