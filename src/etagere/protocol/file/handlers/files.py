"""Operations on whole files."""

from __future__ import annotations

import hashlib
from typing import Final

from msgspec.structs import replace

from etagere.auth.file_permissions import RENAME_FILE_SOURCE
from etagere.model.files import (
    CreateFile,
    DeleteEntry,
    FileNode,
    LeaseFile,
    SetEntryMetadata,
    SetEntryProperties,
    TimedEntry,
)
from etagere.model.ids import new_id
from etagere.model.leases import Acquire
from etagere.operations.file import entries
from etagere.operations.file.changes import file_node
from etagere.protocol.file import access, decode, decode_entries, decode_permissions, encode
from etagere.protocol.file.decode_ranges import RANGE_BYTES_MAX
from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.file.renaming import rename
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import checksums, leases, requests, uploads
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.metadata import metadata_headers, read_metadata
from etagere.protocol.rest.responses import stamp_headers
from etagere.rules.opens import RestAccess

_EMPTY_MD5: Final = hashlib.md5(usedforsecurity=False).digest()


async def create_file(exchange: Exchange, deps: FileDependencies) -> Response:
    decode_entries.require_type_file(exchange)
    decode_entries.require_regular_file(exchange)
    command = CreateFile(
        decode.path_to_change(exchange),
        await decode_entries.new_entry(exchange, deps.engine),
        content_id=new_id(),
        length=decode_entries.length(exchange),
        headers=decode_entries.content_headers_of_new(exchange),
        lease_id=leases.lease_id(exchange),
        only_if_absent=exchange.permit.only_if_absent,
    )
    if exchange.http.body.length != 0:
        return await _create_with_bytes(exchange, deps, command)
    _require_empty(exchange)
    entry = await access.write(exchange, deps, RestAccess.REPLACE, entries.create_file, command)
    return Response(201, encode.changed_headers(entry))


def _require_empty(exchange: Exchange) -> None:
    """Refuses a request without a body that announces one: its bytes have been lost."""
    uploads.announced_length(exchange, RANGE_BYTES_MAX)
    checksums.require_intact(exchange, uploads.NO_BODY, _EMPTY_MD5)


async def _create_with_bytes(
    exchange: Exchange, deps: FileDependencies, command: CreateFile
) -> Response:
    """Creates a file that begins with the bytes of the request; the rest of it is zeros."""
    length = uploads.announced_length(exchange, RANGE_BYTES_MAX)
    if length > command.length:
        raise requests.invalid_header("x-ms-content-length", str(command.length))
    async with deps.store.writer(length, inline=False, md5=True) as writer:
        body = await uploads.receive(exchange, writer)
        checksums.require_intact(exchange, body, writer.md5)
        entry = await access.write(
            exchange,
            deps,
            RestAccess.REPLACE,
            entries.create_file,
            replace(command, body=body),
        )
    headers = [*encode.changed_headers(entry), checksums.md5_header(writer.md5)]
    return Response(201, headers + uploads.structured_headers(exchange))


async def get_file_properties(exchange: Exchange, deps: FileDependencies) -> Response:
    result = await _get_file(exchange, deps)
    headers = encode.file_headers(
        result,
        requests.header_overrides(exchange),
        is_snapshot=bool(exchange.parameter("sharesnapshot")),
        version=exchange.version,
    )
    node = result.entry.node
    if isinstance(node, FileNode):
        headers += encode.md5_headers(node.headers, b"Content-MD5")
    return Response(200, headers, length=encode.content_length(node))


async def get_file_metadata(exchange: Exchange, deps: FileDependencies) -> Response:
    entry = (await _get_file(exchange, deps)).entry
    headers = stamp_headers(entry.stamp) + metadata_headers(entry.metadata)
    return Response(200, headers)


async def _get_file(exchange: Exchange, deps: FileDependencies) -> TimedEntry:
    command = decode_entries.get_file(exchange)
    return await access.read(exchange, deps, RestAccess.QUERY, entries.get_file, command)


async def set_file_properties(exchange: Exchange, deps: FileDependencies) -> Response:
    decode_entries.require_properties(exchange)
    command = SetEntryProperties(
        decode.path_to_change(exchange),
        is_directory=False,
        times=decode_entries.changed_times(exchange),
        attributes=decode_entries.new_attributes(exchange),
        permission=await decode_permissions.permission_to_set(exchange, deps.engine),
        posix=decode_entries.posix(exchange),
        headers=decode_entries.content_headers(exchange),
        length=decode_entries.new_length(exchange),
        child_id=new_id(),
        lease_id=leases.lease_id(exchange),
    )
    needed = RestAccess.SET if command.length is None else RestAccess.WRITE
    entry = await access.write(exchange, deps, needed, entries.set_properties, command)
    return Response(200, encode.changed_headers(entry))


async def set_file_metadata(exchange: Exchange, deps: FileDependencies) -> Response:
    command = SetEntryMetadata(
        decode.path_to_change(exchange),
        is_directory=False,
        metadata=read_metadata(exchange),
        lease_id=leases.lease_id(exchange),
    )
    entry = await access.write(exchange, deps, RestAccess.SET, entries.set_metadata, command)
    return Response(200, [*stamp_headers(entry.stamp), encode.ENCRYPTED])


async def delete_file(exchange: Exchange, deps: FileDependencies) -> Response:
    path, lease_id = decode.path_to_change(exchange), leases.lease_id(exchange)
    command = DeleteEntry(path, is_directory=False, lease_id=lease_id)
    links_left = await access.write(
        exchange, deps, RestAccess.DELETE, entries.delete_entry, command
    )
    return Response(202, [encode.link_count_header(links_left)] if links_left else [])


async def lease_file(exchange: Exchange, deps: FileDependencies) -> Response:
    action = decode_entries.lease_action(exchange)
    command = LeaseFile(decode.path_to_change(exchange), action)
    needed = RestAccess.LEASE if isinstance(action, Acquire) else RestAccess.LIST
    result = await access.write(exchange, deps, needed, entries.lease_file, command)
    headers = stamp_headers(result.entry.stamp)
    headers += leases.lease_action_headers(file_node(result.entry).lease, result.now)
    return Response(leases.LEASE_STATUS.get(action.verb, 200), headers)


async def rename_file(exchange: Exchange, deps: FileDependencies) -> Response:
    return await rename(exchange, deps, RENAME_FILE_SOURCE, is_directory=False)
