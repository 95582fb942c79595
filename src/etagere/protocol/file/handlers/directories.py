"""Operations on directories."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from msgspec.structs import replace

from etagere.auth.file_permissions import RENAME_DIRECTORY_SOURCE
from etagere.model.files import (
    CreateDirectory,
    DeleteEntry,
    Entry,
    EntryPath,
    GetEntry,
    SetEntryMetadata,
    SetEntryProperties,
)
from etagere.operations.file import entries, listing
from etagere.protocol.file import (
    access,
    decode,
    decode_entries,
    decode_listing,
    decode_permissions,
    encode,
    encode_listing,
)
from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.file.renaming import rename
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.listings import fill_page, page_response
from etagere.protocol.rest.metadata import metadata_headers, read_metadata
from etagere.protocol.rest.responses import stamp_headers
from etagere.rules.opens import RestAccess


async def create_directory(exchange: Exchange, deps: FileDependencies) -> Response:
    command = CreateDirectory(
        decode.path_to_change(exchange), await decode_entries.new_entry(exchange, deps.engine)
    )
    entry = await access.write(exchange, deps, RestAccess.CREATE, entries.create_directory, command)
    return Response(201, encode.changed_headers(entry))


async def get_directory_properties(exchange: Exchange, deps: FileDependencies) -> Response:
    return Response(200, encode.directory_headers(await _get_directory(exchange, deps)))


async def get_directory_metadata(exchange: Exchange, deps: FileDependencies) -> Response:
    directory = await _get_directory(exchange, deps)
    headers = stamp_headers(directory.stamp) + metadata_headers(directory.metadata)
    return Response(200, headers)


async def _get_directory(exchange: Exchange, deps: FileDependencies) -> Entry:
    command = GetEntry(decode.path_to_read(exchange))
    result = await access.read(exchange, deps, RestAccess.QUERY, entries.get_directory, command)
    return result.entry


async def set_directory_properties(exchange: Exchange, deps: FileDependencies) -> Response:
    decode_entries.require_properties(exchange)
    command = SetEntryProperties(
        decode.path_to_change(exchange),
        is_directory=True,
        times=decode_entries.changed_times(exchange),
        attributes=decode_entries.new_attributes(exchange),
        permission=await decode_permissions.permission_to_set(exchange, deps.engine),
        posix=decode_entries.posix(exchange),
    )
    entry = await access.write(exchange, deps, RestAccess.SET, entries.set_properties, command)
    return Response(200, encode.changed_headers(entry))


async def set_directory_metadata(exchange: Exchange, deps: FileDependencies) -> Response:
    path, metadata = decode.path_to_change(exchange), read_metadata(exchange)
    command = SetEntryMetadata(path, is_directory=True, metadata=metadata)
    entry = await access.write(exchange, deps, RestAccess.SET, entries.set_metadata, command)
    return Response(200, [*stamp_headers(entry.stamp), encode.ENCRYPTED])


async def delete_directory(exchange: Exchange, deps: FileDependencies) -> Response:
    command = DeleteEntry(decode.path_to_change(exchange), is_directory=True)
    await access.write(exchange, deps, RestAccess.DELETE, entries.delete_entry, command)
    return Response(202)


async def rename_directory(exchange: Exchange, deps: FileDependencies) -> Response:
    return await rename(exchange, deps, RENAME_DIRECTORY_SOURCE, is_directory=True)


async def list_directories_and_files(exchange: Exchange, deps: FileDependencies) -> Response:
    asked, include = decode_listing.list_entries(exchange)
    encode_rows = partial(encode_listing.rows, include=include, version=exchange.version)

    def run(path: EntryPath) -> Awaitable[listing.ListedDirectory]:
        hidden_ids = deps.opens.pending_ids(path.ref)
        return fill_page(
            deps.engine,
            exchange.read_class("listing"),
            listing.list_directory,
            replace(asked, path=path, hidden_ids=hidden_ids) if hidden_ids else asked,
            encode_rows,
        )

    listed = await deps.opens.rest(asked.path, RestAccess.LIST, run)
    start = encode_listing.start(asked, listed.directory_id, exchange)
    return page_response(listed.filled, start, encode_listing.end)
