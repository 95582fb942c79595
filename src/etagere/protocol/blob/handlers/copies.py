"""Copies of blobs.

Blobs of this store are copied synchronously, whatever their size. The bytes of files, and of
sources on other servers, are read: asynchronously, unless a file is short or the client requests a
synchronous copy.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from etagere.engine.interface import Fault, FaultReason, Refused
from etagere.errors import Refusal
from etagere.model.blobs import Blob, CopyStatus
from etagere.model.copies import (
    AbortCopy,
    BeginCopy,
    BlobSource,
    CopyBlob,
    CopyIncrementally,
    Destination,
    PutCopy,
)
from etagere.model.ids import new_id
from etagere.model.sources import SourceBlob, SourceFile
from etagere.operations.blob import copies, pending_copies
from etagere.protocol.blob import decode, decode_sources, decode_tags, decode_tiers
from etagere.protocol.blob.dependencies import BlobDependencies
from etagere.protocol.blob.encode import ENCRYPTED
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import checksums, leases, uploads
from etagere.protocol.rest.conditions import write_conditions
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.metadata import read_metadata
from etagere.protocol.rest.refusals import unread_source
from etagere.protocol.rest.responses import Headers, stamp_headers
from etagere.protocol.sources import requests
from etagere.protocol.sources.opening import (
    COPY,
    COPY_OF_BYTES,
    INCREMENTAL_COPY,
    SYNCHRONOUS_COPY,
    LocalSource,
    Source,
)
from etagere.protocol.sources.remote import RemoteSource
from etagere.rules.copies import COPY_BYTES_MAX, SYNCHRONOUS_BYTES_MAX
from etagere.rules.leases import format_lease_id

_ATTEMPTS_MAX = 8
_COPIED_AT_ONCE_BYTES_MAX = 16 << 20
"""The bytes of longer files are copied after the response."""
_TOO_LARGE: Final = (
    "The source request body for synchronous copy is too large and exceeds the maximum permissible "
    f"limit ({SYNCHRONOUS_BYTES_MAX >> 20}MB)."
)


async def copy_blob(exchange: Exchange, deps: BlobDependencies) -> Response:
    asked = _destination(exchange, tags=decode_tags.tags(exchange))
    asked = replace(asked, seals=decode_sources.seals(exchange), asynchronous=True)
    try:
        source = await deps.sources.open(exchange, COPY, bytes_max=COPY_BYTES_MAX)
    except Refused as refused:
        raise _as_direct_refusal(exchange, refused) from None
    asked = replace(asked, source=source.address)
    if isinstance(source, RemoteSource):
        return _accepted(await _begin_copy(deps, asked, source))
    async with source:
        if isinstance(source.found, SourceFile):
            return _accepted(await _copy_file(exchange, deps, asked))
        command = CopyBlob(asked, _blob_source(exchange, source.found))
        blob = await deps.engine.write(copies.copy_blob, command)
    assert blob is not None, "any version was asked for"
    return _accepted(blob)


async def _copy_file(exchange: Exchange, deps: BlobDependencies, asked: Destination) -> Blob:
    """Copies the bytes of a file of this store."""
    source = await deps.sources.open(exchange, COPY_OF_BYTES, bytes_max=COPY_BYTES_MAX)
    if (source.length or 0) > _COPIED_AT_ONCE_BYTES_MAX:
        return await _begin_copy(deps, asked, source)
    async with source:
        await deps.engine.read(copies.precheck_copy, asked)
        async with deps.store.writer(source.length) as writer:
            body = await uploads.receive_source(source.chunks(), writer)
            command = PutCopy(asked, body, source.headers, source.metadata)
            return await deps.engine.write(copies.put_copy, command)


async def _begin_copy(deps: BlobDependencies, asked: Destination, source: Source) -> Blob:
    """Starts an asynchronous copy, which closes its source."""
    try:
        _require_bytes(source)
        command = BeginCopy(
            asked,
            source.length or 0,
            source.headers,
            source.metadata,
            deps.copying.process,
        )
        # The MD5 of a file is what its client has set.
        md5 = command.headers.content_md5 if isinstance(source, RemoteSource) else None
        with deps.copying.reserve(asked.copy_id):
            begun = await deps.engine.write(pending_copies.begin_copy, command)
            deps.copying.start(begun.copy_ref, source, md5)
    except BaseException:
        await source.close()
        raise
    return begun.blob


async def copy_blob_from_url(exchange: Exchange, deps: BlobDependencies) -> Response:
    copies_tags = decode_sources.copies_tags(exchange)
    asked = _destination(exchange, tags=decode_tags.tags(exchange))
    asked = replace(asked, source_tags=copies_tags)
    expected = checksums.source_checksums(exchange)
    for _ in range(_ATTEMPTS_MAX):
        async with await _opened_in_time(exchange, deps, reads_tags=copies_tags) as source:
            asked = replace(asked, source=source.address)
            if isinstance(source, RemoteSource) or isinstance(source.found, SourceFile):
                blob, crc = await _fetch_copy(deps, asked, source, expected)
                return _accepted(blob, _received(exchange, crc, expected))
            crc = await _checked(source, expected)
            found = _blob_source(exchange, source.found, stamp=source.found.stamp)
            shared = await deps.engine.write(copies.copy_blob, CopyBlob(asked, found))
            if shared is not None:
                return _accepted(shared, _received(exchange, crc, expected))
    raise Fault(FaultReason.CONTENTION, "the source of a copy changed again and again")


async def _opened_in_time(
    exchange: Exchange, deps: BlobDependencies, *, reads_tags: bool
) -> Source:
    try:
        return await deps.sources.open(
            exchange, SYNCHRONOUS_COPY, bytes_max=SYNCHRONOUS_BYTES_MAX, reads_tags=reads_tags
        )
    except Refused as refused:
        if refused.refusal.code != "RequestBodyTooLarge":
            raise _as_own_tag_refusal(refused) from None
        raise unread_source(409, "CannotVerifyCopySource", _TOO_LARGE) from None


async def _fetch_copy(
    deps: BlobDependencies,
    asked: Destination,
    source: Source,
    expected: checksums.SourceChecksums,
) -> tuple[Blob, int]:
    _require_bytes(source)
    headers = source.headers
    await deps.engine.read(copies.precheck_copy, asked)
    async with deps.store.writer(source.length, md5=True) as writer:
        body = await uploads.receive_source(source.chunks(), writer)
        expected.require(body.crc, writer.md5)
        headers = replace(headers, content_md5=writer.md5)
        command = PutCopy(asked, body, headers, source.metadata)
        blob = await deps.engine.write(copies.put_copy, command)
    return blob, body.crc


async def incremental_copy_blob(exchange: Exchange, deps: BlobDependencies) -> Response:
    asked = replace(_destination(exchange), metadata=(), tier="")
    try:
        source = await deps.sources.open(exchange, INCREMENTAL_COPY)
    except Refused as refused:
        raise _as_direct_refusal(exchange, refused) from None
    async with source:
        if isinstance(source, RemoteSource) or isinstance(source.found, SourceFile):
            raise Refused(Refusal("InvalidSourceBlobUrl"))
        asked = replace(asked, source=source.address)
        command = CopyIncrementally(asked, _blob_source(exchange, source.found))
        blob = await deps.engine.write(copies.copy_incrementally, command)
    # Clients expect a pending copy, and find it complete when they check.
    return _accepted(blob, status=CopyStatus.PENDING)


async def abort_copy_blob(exchange: Exchange, deps: BlobDependencies) -> Response:
    copy_id = requests.aborted_copy(exchange)
    command = AbortCopy(decode.blob_name(exchange), copy_id, leases.lease_id(exchange))
    await deps.engine.write(pending_copies.abort_copy, command)
    deps.copying.cancel(copy_id)
    return Response(204)


def _destination(exchange: Exchange, tags: tuple[tuple[str, str], ...] = ()) -> Destination:
    if exchange.header("x-ms-source-range") is not None:
        # A copy is always of the whole source.
        raise Refused(Refusal("UnsupportedHeader", {"HeaderName": "x-ms-source-range"}))
    return Destination(
        decode.blob_name(exchange),
        new_id(),
        "",
        write_conditions(exchange),
        leases.lease_id(exchange),
        exchange.permit.only_if_absent,
        read_metadata(exchange),
        tags,
        tier=decode_tiers.any_tier(exchange),
    )


def _blob_source(exchange: Exchange, found: SourceBlob, stamp: int | None = None) -> BlobSource:
    return BlobSource(found.blob, found.snapshot, requests.source_conditions(exchange), stamp)


def _as_own_tag_refusal(refused: Refused) -> Refused:
    """Returns the refusal for conditions on the tags of a source, which are refused like those on
    the blob's own tags."""
    refusal = refused.refusal
    if refusal.code != "SourceConditionNotMet" or refusal.facts.get("Condition") != "x-ms-if-tags":
        return refused
    return Refused(Refusal("ConditionNotMet", refusal.facts))


def _as_direct_refusal(exchange: Exchange, refused: Refused) -> Refused:
    codes = ("BlobNotFound", "ContainerNotFound")
    direct = requests.direct_refusal(exchange, refused.refusal, codes)
    return _as_own_tag_refusal(refused) if direct is None else Refused(direct)


_ENCRYPTION_SINCE: Final = "2021-06-08"


def _received(exchange: Exchange, crc: int, expected: checksums.SourceChecksums) -> Headers:
    """Returns the checksum headers of a synchronous copy."""
    headers = [checksums.checksum_header(crc, expected.md5)]
    return [*headers, ENCRYPTED] if exchange.version >= _ENCRYPTION_SINCE else headers


def _accepted(
    blob: Blob, received: Headers | None = None, status: CopyStatus | None = None
) -> Response:
    assert blob.copied is not None
    headers = stamp_headers(blob.stamp)
    headers += [
        (b"x-ms-copy-id", format_lease_id(blob.copied.id).encode()),
        (b"x-ms-copy-status", (status or blob.copied.status).value.encode()),
    ]
    return Response(202, headers + (received or []))


# Sources whose bytes are read


def _require_bytes(source: Source) -> None:
    """Refuses a remote source that is not a block blob: the bytes do not show which pages exist, or
    where blocks end."""
    if isinstance(source, LocalSource):
        return
    kind = source.fields.get("x-ms-blob-type", "BlockBlob")
    if kind != "BlockBlob":
        raise Refused(Refusal("InvalidSourceBlobType", {"Source": kind[:20]}))


# Checksums


async def _checked(source: LocalSource, expected: checksums.SourceChecksums) -> int:
    """Returns the CRC64 of all bytes, after they were compared with the expected checksums."""
    md5 = None
    if expected.md5 is None:
        crc = await source.crc64()
    else:
        crc, md5 = await checksums.checksums_of(source.chunks())
    expected.require(crc, md5)
    return crc
