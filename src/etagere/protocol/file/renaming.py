"""Rename Directory and Rename File."""

from __future__ import annotations

from collections.abc import Awaitable

from msgspec.structs import replace

from etagere.auth.permissions import Permission
from etagere.model.files import Entry, EntryPath, RenameEntry
from etagere.operations.file import renames
from etagere.protocol.file import decode, decode_entries, decode_permissions, encode
from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.file.rename_sources import authorized_source
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import leases
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.metadata import read_metadata


async def rename(
    exchange: Exchange,
    deps: FileDependencies,
    source_permission: Permission,
    *,
    is_directory: bool,
) -> Response:
    """Moves a directory or file. What the request does not name stays as it was at the source."""
    command = RenameEntry(
        source=await authorized_source(exchange, deps.authenticator, source_permission),
        destination=decode.path_to_change(exchange),
        is_directory=is_directory,
        replace=decode.switch(exchange, "x-ms-file-rename-replace-if-exists"),
        ignore_read_only=decode.switch(exchange, "x-ms-file-rename-ignore-readonly"),
        source_lease_id=leases.lease_id(exchange, "x-ms-source-lease-id"),
        destination_lease_id=leases.lease_id(exchange, "x-ms-destination-lease-id"),
        times=decode_entries.changed_times(exchange),
        attributes=decode_entries.new_attributes(exchange),
        permission=await decode_permissions.permission_to_set(exchange, deps.engine),
        metadata=read_metadata(exchange) or None,
        only_if_absent=exchange.permit.only_if_absent,
        content_type=None if is_directory else decode_entries.content_type(exchange),
    )

    def run(source: EntryPath, destination: EntryPath) -> Awaitable[Entry]:
        checked = replace(command, source=source, destination=destination)
        return deps.engine.write(renames.rename_entry, checked)

    entry = await deps.opens.rest_rename(
        command.source, command.destination, run, seconds_max=decode.wait_seconds(exchange)
    )
    return Response(200, encode.changed_headers(entry))
