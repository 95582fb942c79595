"""Operations on whole blobs and their snapshots."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from etagere.bodies.store import BodyReader
from etagere.engine.interface import abort_if
from etagere.model.blobs import (
    BlobKind,
    BlobResult,
    DeleteBlob,
    DeleteSnapshot,
    DeleteSnapshots,
    LeaseBlob,
    OpenBlob,
    PutBlob,
    SetBlobHeaders,
    SetBlobMetadata,
    SnapshotBlob,
)
from etagere.model.conditions import NO_CONDITIONS
from etagere.model.ids import new_id
from etagere.operations.blob import blobs, page_blobs, snapshots
from etagere.protocol.blob import decode, decode_pages, decode_tags, decode_tiers, encode, limits
from etagere.protocol.blob.dependencies import BlobDependencies
from etagere.protocol.blob.encode import ENCRYPTED, NOT_ENCRYPTED
from etagere.protocol.blob.permitted import read_as_caller
from etagere.protocol.http.messages import Response
from etagere.protocol.http.ranges import Range
from etagere.protocol.rest import checksums, downloads, leases, requests, uploads
from etagere.protocol.rest.conditions import write_conditions
from etagere.protocol.rest.downloads import FoundBytes, StoredMd5
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.metadata import metadata_headers, read_metadata
from etagere.protocol.rest.responses import stamp_headers
from etagere.rules.dates import format_instant
from etagere.rules.page_blobs import LENGTH_HEADER, check_resizable

_TIER_OF_DOWNLOADS_SINCE: Final = "2026-10-06"
"""Before this version, only Get Blob Properties returns the access tier."""
_UNCOMMITTED_DELETED_SINCE: Final = "2013-08-15"
"""The first version in which uncommitted blocks without a blob can be deleted."""
_DELETED = (b"x-ms-delete-type-permanent", b"true")


async def put_blob(exchange: Exchange, deps: BlobDependencies) -> Response:
    kind = decode.blob_kind(exchange)
    if exchange.header(LENGTH_HEADER) is not None:
        abort_if(check_resizable(kind))
    if kind is not BlobKind.BLOCK:
        return await _put_without_bytes(exchange, deps, kind)
    length = uploads.announced_length(exchange, limits.BLOB_BYTES_MAX)
    command = PutBlob(
        blob=decode.blob_name(exchange),
        body=uploads.NO_BODY,
        headers=decode.blob_headers(
            exchange, standard=True, default_type=decode.DEFAULT_TYPE, md5_of_body=True
        ),
        metadata=read_metadata(exchange),
        conditions=write_conditions(exchange),
        lease_id=leases.lease_id(exchange),
        only_if_absent=exchange.permit.only_if_absent,
        tier=decode_tiers.tier(exchange),
        tags=decode_tags.tags(exchange),
    )
    if length > uploads.PRECHECK_BYTES_MIN:
        checked = command
        if checksums.announces_checksum(exchange):
            # A wrong checksum takes precedence over conditions that are not met.
            checked = replace(command, conditions=NO_CONDITIONS)
        await deps.engine.read(blobs.precheck_put, checked)
    async with deps.store.writer(length, md5=True) as writer:
        body = await uploads.receive(exchange, writer)
        md5, headers = writer.md5, command.headers
        checksums.require_intact(exchange, body, md5, headers.content_md5)
        headers = replace(headers, content_md5=md5)
        whole = replace(command, body=body, headers=headers)
        blob = await deps.engine.write(blobs.put_blob, whole)
    return Response(
        201,
        [
            *stamp_headers(blob.stamp),
            checksums.md5_header(md5),
            checksums.crc64_header(body.crc),
            *uploads.structured_headers(exchange),
            ENCRYPTED,
        ],
    )


async def _put_without_bytes(
    exchange: Exchange, deps: BlobDependencies, kind: BlobKind
) -> Response:
    """Puts a page or append blob, which is empty at first."""
    if exchange.http.body.length:
        raise requests.invalid_header("Content-Length", str(exchange.http.body.length))
    is_page = kind is BlobKind.PAGE
    command = PutBlob(
        blob=decode.blob_name(exchange),
        body=uploads.NO_BODY,
        headers=decode.blob_headers(exchange, standard=True, default_type=decode.DEFAULT_TYPE),
        metadata=read_metadata(exchange),
        conditions=write_conditions(exchange),
        lease_id=leases.lease_id(exchange),
        only_if_absent=exchange.permit.only_if_absent,
        tier=decode_tiers.tier(exchange, kind),
        tags=decode_tags.tags(exchange),
        kind=kind,
        content_id=new_id(),
        length=decode_pages.page_blob_length(exchange) if is_page else 0,
        sequence_number=decode_pages.sequence_number(exchange) or 0,
    )
    blob = await deps.engine.write(blobs.put_blob, command)
    return Response(201, [*stamp_headers(blob.stamp), ENCRYPTED])


# Get


async def get_blob_properties(exchange: Exchange, deps: BlobDependencies) -> Response:
    shown = await _get_result(exchange, deps)
    headers = encode.blob_headers(
        shown,
        requests.header_overrides(exchange),
        is_snapshot=decode.names_snapshot(exchange),
        with_tier=True,
        with_last_access=deps.shows_last_access(exchange),
    )
    headers += encode.md5_headers(shown.blob, b"Content-MD5")
    return Response(200, headers, length=shown.blob.content.length)


async def get_blob_metadata(exchange: Exchange, deps: BlobDependencies) -> Response:
    blob = (await _get_result(exchange, deps)).blob
    headers = stamp_headers(blob.stamp)
    return Response(200, headers + metadata_headers(blob.metadata))


async def _get_result(exchange: Exchange, deps: BlobDependencies) -> BlobResult:
    command = decode.get_blob(exchange)
    return await read_as_caller(
        exchange, deps.engine, blobs.get_blob, command, command.blob.container
    )


async def get_blob(exchange: Exchange, deps: BlobDependencies) -> Response:
    async def opened(reader: BodyReader) -> Response:
        return await _opened(exchange, deps, reader)

    return await downloads.with_reader(deps.store, opened)


async def _opened(exchange: Exchange, deps: BlobDependencies, reader: BodyReader) -> Response:
    asked = downloads.requested_range(exchange)
    opened = await _located(exchange, deps, asked)
    blob = opened.result.blob
    headers = encode.blob_headers(
        opened.result,
        requests.header_overrides(exchange),
        is_snapshot=decode.names_snapshot(exchange),
        with_tier=exchange.version >= _TIER_OF_DOWNLOADS_SINCE,
        with_last_access=deps.shows_last_access(exchange),
    )
    found = FoundBytes(
        opened.plan, opened.start, opened.length, blob.content.length, opened.is_range
    )
    md5 = StoredMd5(blob.headers.content_md5, b"x-ms-blob-content-md5")
    return await downloads.respond(exchange, reader, found, headers, md5)


async def _located(
    exchange: Exchange, deps: BlobDependencies, asked: Range | None
) -> blobs.OpenedBlob:
    ask = decode.get_blob(exchange)
    first, last = (None, None) if asked is None else (asked.start, asked.end)
    container, if_range = ask.blob.container, exchange.header("if-range") or ""
    recording = deps.read_recording
    for brief in (True, False):
        command = OpenBlob(ask, first, last, brief, if_range, recording is not None)
        opened = await read_as_caller(
            exchange, deps.engine, blobs.open_blob, command, container, in_thread=not brief
        )
        if opened is not None:
            if recording is not None and opened.is_read_to_record:
                recording.note(ask.blob, opened.result.blob.stamp)
            return opened
    raise RuntimeError("a lookup that may take long returned nothing")


# Properties


async def set_blob_metadata(exchange: Exchange, deps: BlobDependencies) -> Response:
    command = SetBlobMetadata(
        decode.blob_name(exchange),
        read_metadata(exchange),
        write_conditions(exchange),
        leases.lease_id(exchange),
    )
    blob = await deps.engine.write(blobs.set_blob_metadata, command)
    return Response(200, [*stamp_headers(blob.stamp), ENCRYPTED])


async def set_blob_properties(exchange: Exchange, deps: BlobDependencies) -> Response:
    of_pages = decode_pages.page_blob_properties(exchange, new_id())
    if of_pages is not None:
        blob = await deps.engine.write(page_blobs.set_page_blob_properties, of_pages)
        return Response(200, encode.page_headers(blob))
    command = SetBlobHeaders(
        decode.blob_name(exchange),
        decode.blob_headers(exchange),
        write_conditions(exchange),
        leases.lease_id(exchange),
    )
    blob = await deps.engine.write(blobs.set_blob_headers, command)
    return Response(200, encode.page_headers(blob))


# Leases


async def lease_blob(exchange: Exchange, deps: BlobDependencies) -> Response:
    action = leases.lease_action(exchange)
    conditions = write_conditions(exchange)
    command = LeaseBlob(decode.blob_name(exchange), action, conditions)
    shown = await deps.engine.write(blobs.lease_blob, command)
    headers = stamp_headers(shown.blob.stamp)
    headers += leases.lease_action_headers(shown.blob.lease, shown.now)
    return Response(leases.LEASE_STATUS.get(action.verb, 200), headers)


# Snapshots


async def snapshot_blob(exchange: Exchange, deps: BlobDependencies) -> Response:
    command = SnapshotBlob(
        decode.blob_name(exchange),
        read_metadata(exchange),
        write_conditions(exchange),
        leases.lease_id(exchange),
    )
    taken = await deps.engine.write(snapshots.snapshot_blob, command)
    moment = (b"x-ms-snapshot", format_instant(taken.snapshot).encode())
    return Response(201, [*stamp_headers(taken.blob.stamp), moment, NOT_ENCRYPTED])


# Delete


async def delete_blob(exchange: Exchange, deps: BlobDependencies) -> Response:
    name, snapshot = decode.blob_name(exchange), decode.snapshot(exchange)
    delete_snapshots = decode.delete_snapshots(exchange)
    conditions, lease_id = write_conditions(exchange), leases.lease_id(exchange)
    if snapshot is None:
        dates = decode_tiers.tier_dates(exchange)
        uncommitted = exchange.version >= _UNCOMMITTED_DELETED_SINCE
        command = DeleteBlob(name, conditions, lease_id, delete_snapshots, *dates, uncommitted)
        while not await deps.engine.write(blobs.delete_blob, command):
            pass
        return Response(202, [_DELETED])
    if delete_snapshots is not DeleteSnapshots.NO:
        raise requests.invalid_header("x-ms-delete-snapshots", delete_snapshots.value)
    taken = DeleteSnapshot(name, snapshot, conditions, lease_id)
    await deps.engine.write(snapshots.delete_snapshot, taken)
    return Response(202, [_DELETED])
