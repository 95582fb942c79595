"""What each operation of the blob service takes from a request and gives back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from msgspec.structs import replace

from etagere.auth.permissions import Public, check_public
from etagere.auth.request import octets
from etagere.bodies.contents import Plan
from etagere.bodies.files import FileBodyStore
from etagere.engine.interface import C, Engine, ReadTxn, Refused, T, abort_if
from etagere.errors import Refusal
from etagere.model.blobs import (
    ContainerName,
    CreateContainer,
    DeleteBlob,
    DeleteContainer,
    GetBlob,
    GetContainer,
    LeaseContainer,
    ListBlobs,
    ListContainers,
    OpenBlob,
    PublicAccess,
    PutBlob,
    SetBlobHeaders,
    SetBlobMetadata,
    SetContainerAccess,
    SetContainerMetadata,
    ShownContainer,
)
from etagere.model.bodies import Body
from etagere.model.ids import new_id
from etagere.model.leases import BrokenLease, FixedLease, InfiniteLease, LeaseVerb
from etagere.model.service import ServiceProperties
from etagere.operations.blob import blobs, containers
from etagere.operations.blob.listing import list_blobs
from etagere.operations.service import (
    SetServiceProperties,
    get_service_properties,
    set_service_properties,
)
from etagere.protocol.blob import decode, encode, pages
from etagere.protocol.codecs import access_policies, service_properties
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import FilePart, Response
from etagere.protocol.http.ranges import Range, parse_range
from etagere.rules import cors
from etagere.rules import service_properties as service_property_rules
from etagere.rules.leases import format_lease_id, seconds_until_free

_PUBLIC = {
    PublicAccess.NOTHING: Public.NOTHING,
    PublicAccess.BLOBS: Public.BLOB,
    PublicAccess.EVERYTHING: Public.CONTAINER,
}
_XML = (b"Content-Type", b"application/xml")
_BODY_BYTES_MAX = 5_000 << 20
_XML_BYTES_MAX = 1 << 20
_FORESEEN_BYTES_MIN = 256 << 10
_LEASE_STATUS = {LeaseVerb.ACQUIRE: 201, LeaseVerb.BREAK: 202}


class Handlers:
    """One method per operation, under the name that it has in the table of routes."""

    def __init__(self, engine: Engine, store: FileBodyStore) -> None:
        self._engine = engine
        self._store = store

    def permission(self, exchange: Exchange, operation: str) -> str:
        """The row of the table of permissions; of a lease, that of its action."""
        if operation != "lease_container":
            return operation
        return f"{decode.lease_verb(exchange).value}_container_lease"

    async def _read(
        self,
        exchange: Exchange,
        operation: Callable[[ReadTxn, C], T],
        command: C,
        container: ContainerName,
    ) -> T:
        """A read, with what a caller without a name may see decided in the same snapshot."""
        if exchange.permit.public is Public.NOTHING:
            return await self._engine.read(operation, command)

        def as_anybody(txn: ReadTxn, command: C) -> T:
            found = txn.get(containers.CONTAINERS, container.key)
            allowed = Public.NOTHING if found is None else _PUBLIC[found.public_access]
            abort_if(check_public(exchange.permit, allowed, version=exchange.version))
            return operation(txn, command)

        return await self._engine.read(as_anybody, command)

    # The service

    async def list_containers(self, exchange: Exchange) -> Response:
        command = ListContainers(
            exchange.signed.account,
            decode.page_limit(exchange),
            exchange.parameter("prefix") or "",
            decode.marker(exchange),
        )
        page = await self._engine.read(containers.list_containers, command)
        include = decode.included(exchange)
        body = pages.containers_page(page, command, decode.endpoint(exchange), include=include)
        return Response(200, [_XML], body)

    async def get_blob_service_properties(self, exchange: Exchange) -> Response:
        properties = await self.service_properties(exchange)
        return Response(
            200, [_XML], service_properties.encode(properties, "blob", exchange.version)
        )

    async def set_blob_service_properties(self, exchange: Exchange) -> Response:
        change = service_properties.decode(await exchange.http.body.read(_XML_BYTES_MAX))
        if isinstance(change, Refusal):
            raise Refused(change)
        abort_if(service_property_rules.check(change, "blob", exchange.version))
        command = SetServiceProperties(exchange.signed.account, "blob", change)
        await self._engine.write(set_service_properties, command)
        return Response(202)

    async def service_properties(self, exchange: Exchange) -> ServiceProperties:
        return await self._engine.read(get_service_properties, (exchange.signed.account, "blob"))

    async def get_blob_service_stats(self, exchange: Exchange) -> Response:
        """There is no second place that could lag behind: it is always as of now."""
        if not exchange.signed.secondary:
            raise Refused(Refusal("InvalidQueryParameterValue", {"QueryParameterName": "comp"}))
        return Response(200, [_XML], encode.stats())

    async def preflight_blob_request(self, exchange: Exchange) -> Response:
        properties = await self.service_properties(exchange)
        answer = cors.preflight(
            properties.cors,
            exchange.header("origin"),
            exchange.header("access-control-request-method"),
            exchange.header("access-control-request-headers"),
        )
        if isinstance(answer, Refusal):
            raise Refused(answer)
        return Response(200, [(octets(name), octets(value)) for name, value in answer])

    async def cors_headers(self, exchange: Exchange, response: Response) -> encode.Headers:
        """What a page of another origin is told with the answer to its request."""
        origin = exchange.header("origin")
        if origin is None or exchange.signed.method == "OPTIONS":
            return []
        properties = await self.service_properties(exchange)
        names = [name.decode() for name, _ in response.headers]
        found = cors.actual(properties.cors, origin, exchange.signed.method, names)
        return [(octets(name), octets(value)) for name, value in found]

    async def get_account_information(self, exchange: Exchange) -> Response:
        return Response(
            200,
            [
                (b"x-ms-sku-name", b"Standard_RAGRS"),
                (b"x-ms-account-kind", b"StorageV2"),
                (b"x-ms-is-hns-enabled", b"false"),
            ],
        )

    # Containers

    async def create_container(self, exchange: Exchange) -> Response:
        command = CreateContainer(
            decode.container_name(exchange),
            new_id(),
            decode.metadata(exchange),
            decode.public_access(exchange),
        )
        made = await self._engine.write(containers.create_container, command)
        return Response(201, encode.stamp_headers(made.stamp))

    async def get_container_properties(self, exchange: Exchange) -> Response:
        return Response(200, encode.container_headers(await self._shown_container(exchange)))

    async def get_container_metadata(self, exchange: Exchange) -> Response:
        container = (await self._shown_container(exchange)).container
        described = encode.metadata_headers(container.metadata)
        return Response(200, encode.stamp_headers(container.stamp) + described)

    async def get_container_acl(self, exchange: Exchange) -> Response:
        container = (await self._shown_container(exchange)).container
        headers = [*encode.stamp_headers(container.stamp), *encode.access_headers(container), _XML]
        return Response(200, headers, access_policies.encode(container.policies))

    async def _shown_container(self, exchange: Exchange) -> ShownContainer:
        name = decode.container_name(exchange)
        command = GetContainer(name, decode.lease_id(exchange))
        return await self._read(exchange, containers.get_container, command, name)

    async def set_container_metadata(self, exchange: Exchange) -> Response:
        command = SetContainerMetadata(
            decode.container_name(exchange),
            decode.metadata(exchange),
            decode.write_conditions(exchange),
            decode.lease_id(exchange),
        )
        changed = await self._engine.write(containers.set_container_metadata, command)
        return Response(200, encode.stamp_headers(changed.stamp))

    async def set_container_acl(self, exchange: Exchange) -> Response:
        policies = access_policies.decode(await exchange.http.body.read(_XML_BYTES_MAX), "blob")
        if isinstance(policies, Refusal):
            raise Refused(policies)
        command = SetContainerAccess(
            decode.container_name(exchange),
            decode.public_access(exchange),
            policies,
            decode.write_conditions(exchange),
            decode.lease_id(exchange),
        )
        changed = await self._engine.write(containers.set_container_access, command)
        return Response(200, encode.stamp_headers(changed.stamp))

    async def delete_container(self, exchange: Exchange) -> Response:
        command = DeleteContainer(
            decode.container_name(exchange),
            decode.write_conditions(exchange),
            decode.lease_id(exchange),
        )
        await self._engine.write(containers.delete_container, command)
        return Response(202)

    async def lease_container(self, exchange: Exchange) -> Response:
        action = decode.lease_action(exchange)
        conditions = decode.write_conditions(exchange)
        command = LeaseContainer(decode.container_name(exchange), action, conditions)
        shown = await self._engine.write(containers.lease_container, command)
        lease = shown.container.lease
        headers = encode.stamp_headers(shown.container.stamp)
        if isinstance(lease, FixedLease | InfiniteLease):
            headers.append((b"x-ms-lease-id", format_lease_id(lease.id).encode()))
        elif isinstance(lease, BrokenLease):
            seconds = seconds_until_free(lease, shown.now)
            headers.append((b"x-ms-lease-time", b"%d" % seconds))
        return Response(_LEASE_STATUS.get(action.verb, 200), headers)

    async def list_blobs(self, exchange: Exchange) -> Response:
        name = decode.container_name(exchange)
        command = ListBlobs(
            name,
            decode.page_limit(exchange),
            exchange.parameter("prefix") or "",
            exchange.parameter("delimiter") or "",
            decode.marker(exchange) or exchange.parameter("startfrom") or "",
        )
        page = await self._read(exchange, list_blobs, command, name)
        include = decode.included(exchange)
        body = pages.blobs_page(page, command, decode.endpoint(exchange), include=include)
        return Response(200, [_XML], body)

    # Blobs

    async def put_blob(self, exchange: Exchange) -> Response:
        kind = decode.required_header(exchange, "x-ms-blob-type")
        if kind.lower() != "blockblob":
            raise decode.invalid_header("x-ms-blob-type", kind)
        length = exchange.http.body.length
        if length is None:
            raise Refused(Refusal("MissingContentLengthHeader"))
        if length > _BODY_BYTES_MAX:
            raise Refused(Refusal("RequestBodyTooLarge", {"MaxLimit": _BODY_BYTES_MAX}))
        command = PutBlob(
            decode.blob_name(exchange),
            Body(b"", 0, 0),
            decode.blob_headers(exchange, standard=True),
            decode.metadata(exchange),
            decode.write_conditions(exchange),
            decode.lease_id(exchange),
            exchange.permit.only_if_absent,
        )
        if length > _FORESEEN_BYTES_MIN:
            await self._engine.read(blobs.foresee_put, command)
        async with self._store.writer(length) as writer:
            md5 = hashlib.md5(usedforsecurity=False)
            async for chunk in exchange.http.body:
                md5.update(chunk)
                await writer.append(chunk)
            body = await writer.seal()
            _require_intact(exchange, md5.digest(), body, command.headers.content_md5)
            headers = command.headers
            if headers.content_md5 is None:
                headers = replace(headers, content_md5=md5.digest())
            whole = replace(command, body=body, headers=headers)
            blob = await self._engine.write(blobs.put_blob, whole)
        crc = body.crc.to_bytes(8, "little")
        return Response(
            201,
            [
                *encode.stamp_headers(blob.stamp),
                (b"Content-MD5", encode.digest_text(md5.digest())),
                (b"x-ms-content-crc64", encode.digest_text(crc)),
                (b"x-ms-request-server-encrypted", b"true"),
            ],
        )

    async def get_blob_properties(self, exchange: Exchange) -> Response:
        name = decode.blob_name(exchange)
        command = GetBlob(name, decode.read_conditions(exchange), decode.lease_id(exchange))
        shown = await self._read(exchange, blobs.get_blob, command, name.container)
        headers = encode.blob_headers(shown, decode.overrides(exchange))
        headers += encode.md5_headers(shown.blob, b"Content-MD5")
        return Response(200, headers, length=shown.blob.content.length)

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
        name = decode.blob_name(exchange)
        asked = _range(exchange)
        ask = GetBlob(name, decode.read_conditions(exchange), decode.lease_id(exchange))
        command = OpenBlob(ask) if asked is None else OpenBlob(ask, asked.start, asked.end)
        opened = await self._read(exchange, blobs.open_blob, command, name.container)
        shown, start, length, plan = opened
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

    def _body(self, plan: Plan) -> bytes | list[FilePart]:
        if isinstance(plan, bytes):
            return plan
        parts = []
        for stretch in plan:
            file = self._store.segment_file(stretch.segment)
            parts.append(FilePart(file.descriptor, stretch.offset, stretch.length, file))
        return parts

    async def get_blob_metadata(self, exchange: Exchange) -> Response:
        name = decode.blob_name(exchange)
        command = GetBlob(name, decode.read_conditions(exchange), decode.lease_id(exchange))
        shown = await self._read(exchange, blobs.get_blob, command, name.container)
        headers = encode.stamp_headers(shown.blob.stamp)
        return Response(200, headers + encode.metadata_headers(shown.blob.metadata))

    async def set_blob_metadata(self, exchange: Exchange) -> Response:
        command = SetBlobMetadata(
            decode.blob_name(exchange),
            decode.metadata(exchange),
            decode.write_conditions(exchange),
            decode.lease_id(exchange),
        )
        blob = await self._engine.write(blobs.set_blob_metadata, command)
        encrypted = (b"x-ms-request-server-encrypted", b"true")
        return Response(200, [*encode.stamp_headers(blob.stamp), encrypted])

    async def set_blob_properties(self, exchange: Exchange) -> Response:
        command = SetBlobHeaders(
            decode.blob_name(exchange),
            decode.blob_headers(exchange, standard=False),
            decode.write_conditions(exchange),
            decode.lease_id(exchange),
        )
        blob = await self._engine.write(blobs.set_blob_headers, command)
        return Response(200, encode.stamp_headers(blob.stamp))

    async def delete_blob(self, exchange: Exchange) -> Response:
        if (exchange.header("x-ms-delete-snapshots") or "").lower() == "only":
            # There are none yet, and the blob itself is to stay.
            raise Refused(Refusal("UnsupportedHeader", {"HeaderName": "x-ms-delete-snapshots"}))
        command = DeleteBlob(
            decode.blob_name(exchange),
            decode.write_conditions(exchange),
            decode.lease_id(exchange),
        )
        await self._engine.write(blobs.delete_blob, command)
        return Response(202, [(b"x-ms-delete-type-permanent", b"true")])


def _range(exchange: Exchange) -> Range | None:
    written = exchange.header("x-ms-range") or exchange.header("range")
    return None if written is None else parse_range(written)


def _require_intact(exchange: Exchange, md5: bytes, body: Body, blob_md5: bytes | None) -> None:
    """What arrived must be what was sent, as far as the sender said what that was.

    A blob that is put whole is its body: what is said of the blob counts before what is said of
    the body.
    """
    sent_md5, sent_crc = decode.sent_md5(exchange), decode.sent_crc64(exchange)
    if sent_md5 is not None and sent_crc is not None:
        raise Refused(Refusal("BothCrc64AndMd5HeaderPresent"))
    told_md5 = blob_md5 or sent_md5
    if told_md5 is not None and told_md5 != md5:
        facts = {
            "UserSpecifiedMd5": encode.digest_text(told_md5).decode(),
            "ServerCalculatedMd5": encode.digest_text(md5).decode(),
        }
        raise Refused(Refusal("Md5Mismatch", dict(facts)))
    if sent_crc is not None and sent_crc != body.crc:
        raise Refused(Refusal("Crc64Mismatch"))
