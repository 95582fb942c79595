"""Operations on whole blobs and their snapshots."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from etagere.bodies.contents import Plan, Stretch
from etagere.model.blobs import (
    DeleteBlob,
    DeleteSnapshot,
    LeaseBlob,
    OpenBlob,
    PutBlob,
    SetBlobHeaders,
    SetBlobMetadata,
    ShownBlob,
    SnapshotBlob,
    SnapshotsToo,
)
from etagere.operations.blob import blobs, snapshots
from etagere.protocol import requests
from etagere.protocol.answers import metadata_headers
from etagere.protocol.blob import decode, encode, uploads
from etagere.protocol.blob.handlers.base import ENCRYPTED, Handling
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import FilePart, Response
from etagere.protocol.http.ranges import Range, parse_range
from etagere.rules.dates import format_instant

_DELETED = (b"x-ms-delete-type-permanent", b"true")


class BlobHandlers(Handling):
    """Blobs: put whole, shown, described, leased, kept as they are, and deleted."""

    async def put_blob(self, exchange: Exchange) -> Response:
        kind = requests.required_header(exchange, "x-ms-blob-type")
        if kind.lower() != "blockblob":
            raise requests.invalid_header("x-ms-blob-type", kind)
        length = uploads.announced_length(exchange, uploads.BLOB_BYTES_MAX)
        command = PutBlob(
            decode.blob_name(exchange),
            uploads.NO_BODY,
            decode.blob_headers(exchange, standard=True, default_type=decode.DEFAULT_TYPE),
            requests.metadata(exchange),
            decode.write_conditions(exchange),
            decode.lease_id(exchange),
            exchange.permit.only_if_absent,
            decode.tier(exchange),
        )
        if length > uploads.FORESEEN_BYTES_MIN:
            await self._engine.read(blobs.foresee_put, command)
        async with self._store.writer(length, md5=True) as writer:
            body = await uploads.receive(exchange, writer)
            md5, headers = writer.md5, command.headers
            uploads.require_intact(exchange, body, md5, headers.content_md5)
            headers = replace(headers, content_md5=md5)
            whole = replace(command, body=body, headers=headers)
            blob = await self._engine.write(blobs.put_blob, whole)
        return Response(
            201,
            [
                *encode.stamp_headers(blob.stamp),
                (b"Content-MD5", encode.digest_text(md5)),
                encode.crc64_header(body.crc),
                ENCRYPTED,
            ],
        )

    # Shown

    async def get_blob_properties(self, exchange: Exchange) -> Response:
        shown = await self._shown(exchange)
        headers = encode.blob_headers(shown, decode.overrides(exchange))
        headers += encode.md5_headers(shown.blob, b"Content-MD5")
        return Response(200, headers, length=shown.blob.content.length)

    async def get_blob_metadata(self, exchange: Exchange) -> Response:
        blob = (await self._shown(exchange)).blob
        headers = encode.stamp_headers(blob.stamp)
        return Response(200, headers + metadata_headers(blob.metadata))

    async def _shown(self, exchange: Exchange) -> ShownBlob:
        command = decode.get_blob(exchange)
        return await self._read(exchange, blobs.get_blob, command, command.blob.container)

    async def get_blob(self, exchange: Exchange) -> Response:
        pin = self._store.pinned()
        pin.__enter__()
        try:
            response = await self._opened(exchange)
        except BaseException:
            pin.__exit__(None, None, None)
            raise
        # What was found stays on disk until the last byte is out.
        response.finished = lambda: pin.__exit__(None, None, None)
        return response

    async def _opened(self, exchange: Exchange) -> Response:
        asked = _range(exchange)
        shown, start, length, plan = await self._located(exchange, asked)
        total = shown.blob.content.length
        headers = encode.blob_headers(shown, decode.overrides(exchange))
        if asked is None:
            headers += encode.md5_headers(shown.blob, b"Content-MD5")
            return Response(200, headers, self._body(plan), length)
        headers += encode.md5_headers(shown.blob, b"x-ms-blob-content-md5")
        headers.append((b"Content-Range", b"bytes %d-%d/%d" % (start, start + length - 1, total)))
        checksums = decode.wanted_checksums(exchange, length)
        if not checksums:
            return Response(206, headers, self._body(plan), length)
        data = b"".join([chunk async for chunk in self._store.read(plan)])
        return Response(206, headers + encode.checksum_headers(data, checksums), data)

    async def _located(self, exchange: Exchange, asked: Range | None) -> blobs.OpenedBlob:
        ask = decode.get_blob(exchange)
        first, last = (None, None) if asked is None else (asked.start, asked.end)
        for brief in (True, False):
            command, container = OpenBlob(ask, first, last, brief), ask.blob.container
            opened = await self._read(
                exchange, blobs.open_blob, command, container, aside=not brief
            )
            if opened is not None:
                return opened
        raise RuntimeError("what may take long is not given up")

    def _body(self, plan: Plan) -> bytes | list[FilePart]:
        if isinstance(plan, bytes):
            return plan
        parts = []
        for segment, offset, length in _runs(plan):
            file = self._store.segment_file(segment)
            parts.append(FilePart(file.descriptor, offset, length, file))
        return parts

    # Described

    async def set_blob_metadata(self, exchange: Exchange) -> Response:
        command = SetBlobMetadata(
            decode.blob_name(exchange),
            requests.metadata(exchange),
            decode.write_conditions(exchange),
            decode.lease_id(exchange),
        )
        blob = await self._engine.write(blobs.set_blob_metadata, command)
        return Response(200, [*encode.stamp_headers(blob.stamp), ENCRYPTED])

    async def set_blob_properties(self, exchange: Exchange) -> Response:
        command = SetBlobHeaders(
            decode.blob_name(exchange),
            decode.blob_headers(exchange),
            decode.write_conditions(exchange),
            decode.lease_id(exchange),
        )
        blob = await self._engine.write(blobs.set_blob_headers, command)
        return Response(200, encode.stamp_headers(blob.stamp))

    # Leased

    async def lease_blob(self, exchange: Exchange) -> Response:
        action = decode.lease_action(exchange)
        conditions = decode.write_conditions(exchange)
        command = LeaseBlob(decode.blob_name(exchange), action, conditions)
        shown = await self._engine.write(blobs.lease_blob, command)
        headers = encode.stamp_headers(shown.blob.stamp)
        headers += encode.lease_action_headers(shown.blob.lease, shown.now)
        return Response(encode.LEASE_STATUS.get(action.verb, 200), headers)

    # Kept as they are

    async def snapshot_blob(self, exchange: Exchange) -> Response:
        command = SnapshotBlob(
            decode.blob_name(exchange),
            requests.metadata(exchange),
            decode.write_conditions(exchange),
            decode.lease_id(exchange),
        )
        taken = await self._engine.write(snapshots.snapshot_blob, command)
        moment = (b"x-ms-snapshot", format_instant(taken.snapshot).encode())
        return Response(201, [*encode.stamp_headers(taken.blob.stamp), moment, ENCRYPTED])

    # Deleted

    async def delete_blob(self, exchange: Exchange) -> Response:
        name, snapshot = decode.blob_name(exchange), decode.snapshot(exchange)
        snapshots_too = decode.snapshots_too(exchange)
        conditions, lease_id = decode.write_conditions(exchange), decode.lease_id(exchange)
        if snapshot is None:
            command = DeleteBlob(name, conditions, lease_id, snapshots_too)
            await self._engine.write(blobs.delete_blob, command)
            return Response(202, [_DELETED])
        if snapshots_too is not SnapshotsToo.NO:
            raise requests.invalid_header("x-ms-delete-snapshots", snapshots_too.value)
        taken = DeleteSnapshot(name, snapshot, conditions, lease_id)
        await self._engine.write(snapshots.delete_snapshot, taken)
        return Response(202, [_DELETED])


def _runs(plan: tuple[Stretch, ...]) -> Iterator[tuple[int, int, int]]:
    """Segment, offset and length of stretches, those that lie behind each other as one."""
    segment, offset, length = plan[0][:3]
    for stretch in plan[1:]:
        if stretch.segment == segment and stretch.offset == offset + length:
            length += stretch.length
            continue
        yield segment, offset, length
        segment, offset, length = stretch[:3]
    yield segment, offset, length


def _range(exchange: Exchange) -> Range | None:
    written = exchange.header("x-ms-range") or exchange.header("range")
    return None if written is None else parse_range(written)
