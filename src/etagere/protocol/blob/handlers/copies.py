"""Copies of blobs.

What is in this store is copied while the client waits, whatever its size. What is elsewhere is read
afterwards, unless the client asks to wait for it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from msgspec.structs import replace

from etagere.auth.request import address, is_text
from etagere.engine.interface import Fault, FaultReason, Refused
from etagere.errors import Refusal
from etagere.model.blobs import Blob, BlobHeaders, CopyStatus
from etagere.model.containers import Metadata
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
from etagere.operations.blob import copies, pending_copies
from etagere.protocol import requests
from etagere.protocol.answers import Headers
from etagere.protocol.blob import decode, decode_sources, decode_tags, decode_tiers, encode, uploads
from etagere.protocol.blob.handlers.base import ENCRYPTED, Handling
from etagere.protocol.blob.sources import Here, Source
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import Response
from etagere.protocol.sources import addresses
from etagere.protocol.sources.elsewhere import Elsewhere
from etagere.protocol.sources.refusals import UnreadSource, reads_source, unread
from etagere.rules.copies import COPY_BYTES_MAX, SYNCHRONOUS_BYTES_MAX
from etagere.rules.leases import format_lease_id
from etagere.rules.names import check_metadata

_ATTEMPTS_MAX = 8
_TOO_LARGE: Final = (
    "The source request body for synchronous copy is too large and exceeds the maximum permissible "
    f"limit ({SYNCHRONOUS_BYTES_MAX >> 20}MB)."
)


class CopyHandlers(Handling):
    """Copies of blobs."""

    @reads_source
    async def copy_blob(self, exchange: Exchange) -> Response:
        asked = _destination(exchange, tags=decode_tags.tags(exchange))
        asked = replace(asked, seals=decode_sources.seals(exchange), asynchronous=True)
        try:
            source = await self._sources.open(
                exchange,
                bytes_max=COPY_BYTES_MAX,
                owner_reads=True,
                is_copy=True,
                reads=False,
                seconds_max=None,
            )
        except Refused as refused:
            raise _as_own(exchange, refused) from None
        asked = replace(asked, source=source.address)
        if isinstance(source, Elsewhere):
            return _accepted(await self._begin_copy(asked, source))
        async with source:
            command = CopyBlob(asked, _blob_source(exchange, source))
            blob = await self._engine.write(copies.copy_blob, command)
        assert blob is not None, "any version was asked for"
        return _accepted(blob)

    async def _begin_copy(self, asked: Destination, source: Elsewhere) -> Blob:
        """Whoever carries the copy closes its source."""
        try:
            command = BeginCopy(
                asked,
                source.length or 0,
                _described(source),
                _metadata(source),
                self._copying.process,
            )
            with self._copying.expecting(asked.copy_id):
                begun = await self._engine.write(pending_copies.begin_copy, command)
                self._copying.carry(begun.under_way, source, command.headers.content_md5)
        except BaseException:
            await source.close()
            raise
        return begun.blob

    @reads_source
    async def copy_blob_from_url(self, exchange: Exchange) -> Response:
        copies_tags = decode_sources.copies_tags(exchange)
        asked = _destination(exchange, tags=decode_tags.tags(exchange))
        asked = replace(asked, source_tags=copies_tags)
        told = uploads.told_of_source(exchange)
        for _ in range(_ATTEMPTS_MAX):
            async with await self._opened_in_time(exchange, tags_too=copies_tags) as source:
                asked = replace(asked, source=source.address)
                if isinstance(source, Elsewhere):
                    blob, crc = await self._fetch_copy(asked, source, told)
                    return _accepted(blob, _received(exchange, crc, told))
                crc = await _checked(source, told)
                found = _blob_source(exchange, source, stamp=source.found.stamp)
                shared = await self._engine.write(copies.copy_blob, CopyBlob(asked, found))
                if shared is not None:
                    return _accepted(shared, _received(exchange, crc, told))
        raise Fault(FaultReason.CONTENTION, "the source of a copy changed again and again")

    async def _opened_in_time(self, exchange: Exchange, *, tags_too: bool) -> Source:
        try:
            return await self._sources.open(
                exchange, bytes_max=SYNCHRONOUS_BYTES_MAX, is_copy=True, tags_too=tags_too
            )
        except Refused as refused:
            if refused.refusal.code != "RequestBodyTooLarge":
                raise _as_told(refused) from None
            raise unread(409, "CannotVerifyCopySource", _TOO_LARGE) from None

    async def _fetch_copy(
        self, asked: Destination, source: Elsewhere, told: uploads.ToldChecksums
    ) -> tuple[Blob, int]:
        headers, metadata = _described(source), _metadata(source)
        await self._engine.read(copies.foresee_copy, asked)
        async with self._store.writer(source.length, md5=True) as writer:
            body = await uploads.receive_source(source.chunks(), writer)
            told.require(body.crc, writer.md5)
            headers = replace(headers, content_md5=writer.md5)
            command = PutCopy(asked, body, headers, metadata)
            blob = await self._engine.write(copies.put_copy, command)
        return blob, body.crc

    @reads_source
    async def incremental_copy_blob(self, exchange: Exchange) -> Response:
        asked = replace(_destination(exchange), metadata=(), tier="")
        try:
            source = await self._sources.open(exchange, owner_reads=True, is_copy=True, reads=False)
        except Refused as refused:
            raise _as_own(exchange, refused) from None
        async with source:
            if isinstance(source, Elsewhere):
                raise Refused(Refusal("InvalidSourceBlobUrl"))
            asked = replace(asked, source=source.address)
            command = CopyIncrementally(asked, _blob_source(exchange, source))
            blob = await self._engine.write(copies.copy_incrementally, command)
        # Clients expect to be told to wait, and find the copy made when they look.
        return _accepted(blob, status=CopyStatus.PENDING)

    async def abort_copy_blob(self, exchange: Exchange) -> Response:
        copy_id = decode_sources.aborted_copy(exchange)
        command = AbortCopy(decode.blob_name(exchange), copy_id, decode.lease_id(exchange))
        await self._engine.write(pending_copies.abort_copy, command)
        self._copying.drop(copy_id)
        return Response(204)


def _destination(exchange: Exchange, tags: tuple[tuple[str, str], ...] = ()) -> Destination:
    if exchange.header("x-ms-source-range") is not None:
        # A copy is always of all that there is.
        raise Refused(Refusal("UnsupportedHeader", {"HeaderName": "x-ms-source-range"}))
    return Destination(
        decode.blob_name(exchange),
        new_id(),
        "",
        decode.write_conditions(exchange),
        decode.lease_id(exchange),
        exchange.permit.only_if_absent,
        requests.metadata(exchange),
        tags,
        tier=decode_tiers.any_tier(exchange),
    )


def _blob_source(exchange: Exchange, source: Here, stamp: int | None = None) -> BlobSource:
    conditions = decode_sources.source_conditions(exchange)
    return BlobSource(source.found.blob, source.found.snapshot, conditions, stamp)


def _as_told(refused: Refused) -> Refused:
    """Clients expect tags of a source that are not as they asked to be told like their own."""
    refusal = refused.refusal
    if refusal.code != "SourceConditionNotMet" or refusal.facts.get("Condition") != "x-ms-if-tags":
        return refused
    return Refused(Refusal("ConditionNotMet", refusal.facts))


def _as_own(exchange: Exchange, refused: Refused) -> Refused:
    """A source of the same account that is not there is not found, as if it had been asked for."""
    refusal = refused.refusal
    if not isinstance(refusal, UnreadSource) or refusal.status != 404:
        return _as_told(refused)
    named = addresses.parse(decode_sources.copy_source(exchange))
    code = str(refusal.facts.get("CopySourceErrorCode"))
    if named is None or code not in ("BlobNotFound", "ContainerNotFound"):
        return refused
    if address(named.authority, named.path).account != exchange.signed.account:
        return refused
    return Refused(Refusal(code))


_ENCRYPTION_TOLD_SINCE: Final = "2021-06-08"


def _received(exchange: Exchange, crc: int, told: uploads.ToldChecksums) -> Headers:
    """What the answer says of bytes that were copied while the client waited."""
    headers = [uploads.checksum_header(crc, told.md5)]
    return [*headers, ENCRYPTED] if exchange.version >= _ENCRYPTION_TOLD_SINCE else headers


def _accepted(
    blob: Blob, received: Headers | None = None, status: CopyStatus | None = None
) -> Response:
    assert blob.copied is not None
    headers = encode.stamp_headers(blob.stamp)
    headers += [
        (b"x-ms-copy-id", format_lease_id(blob.copied.id).encode()),
        (b"x-ms-copy-status", (status or blob.copied.status).value.encode()),
    ]
    return Response(202, headers + (received or []))


# What a copy takes over from elsewhere


def _described(source: Elsewhere) -> BlobHeaders:
    kind = source.fields.get("x-ms-blob-type", "BlockBlob")
    if kind != "BlockBlob":
        # Which pages are there, and where blocks end, cannot be told from bytes.
        raise Refused(Refusal("InvalidSourceBlobType", {"Source": kind[:20]}))
    try:
        md5 = base64.b64decode(source.fields.get("content-md5", ""), validate=True)
    except (binascii.Error, ValueError):
        md5 = b""
    return replace(source.headers, content_md5=md5 if len(md5) == _MD5_BYTES else None)


_MD5_BYTES = 16


def _metadata(source: Elsewhere) -> Metadata:
    """None at all if a blob could not have them."""
    pairs = source.metadata
    told = all(is_text(name) and is_text(value) for name, value in pairs)
    return pairs if told and check_metadata(pairs) is None else ()


# Checksums


async def _checked(source: Here, told: uploads.ToldChecksums) -> int:
    """The CRC64 of all bytes, which are read only if nobody knows without."""
    crc = uploads.known_crc(source.blob.content) if told.md5 is None else None
    if crc is None:
        crc, md5 = await uploads.checksums_of(source.chunks())
        told.require(crc, md5)
    else:
        told.require(crc, None)
    return crc
