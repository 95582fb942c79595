"""Symbolic and hard links."""

from __future__ import annotations

from urllib.parse import quote

from etagere.model.files import CreateHardLink, CreateSymbolicLink, SymbolicLinkNode
from etagere.operations.file import links
from etagere.protocol.file import access, decode, decode_entries, decode_links, encode
from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import leases
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.responses import stamp_headers
from etagere.rules.opens import RestAccess


async def create_symbolic_link(exchange: Exchange, deps: FileDependencies) -> Response:
    command = CreateSymbolicLink(
        decode.path_to_change(exchange),
        await decode_entries.new_entry(exchange, deps.engine),
        decode_links.link_text(exchange),
        leases.lease_id(exchange),
    )
    entry = await access.write(
        exchange, deps, RestAccess.CREATE, links.create_symbolic_link, command
    )
    return Response(201, encode.changed_headers(entry))


async def get_symbolic_link(exchange: Exchange, deps: FileDependencies) -> Response:
    command = decode_entries.get_file(exchange)
    entry = await access.read(exchange, deps, RestAccess.QUERY, links.get_symbolic_link, command)
    headers = stamp_headers(entry.stamp)
    if isinstance(entry.node, SymbolicLinkNode):
        # Clients decode the text, which may contain any character.
        headers.append((b"x-ms-link-text", quote(entry.node.target, safe="").encode()))
    return Response(200, headers)


async def create_hard_link(exchange: Exchange, deps: FileDependencies) -> Response:
    decode_entries.require_type_file(exchange)
    command = CreateHardLink(
        decode.path_to_change(exchange), decode_links.target(exchange), leases.lease_id(exchange)
    )
    entry = await access.write(exchange, deps, RestAccess.CREATE, links.create_hard_link, command)
    return Response(201, encode.changed_headers(entry))
