"""The sources of renames: the path in `x-ms-file-rename-source`, if the caller may move it.

The source is in the share of the request, so only the path of its URL counts. A token in the URL is
valid for the source alone, like one in the URL of a copy's source. Without a token, the caller of
the request must have the permission for the source, too.
"""

from __future__ import annotations

from typing import Final

from etagere.auth.permissions import Permission, authorize
from etagere.auth.request import is_text
from etagere.auth.sas_parsing import carries_sas
from etagere.engine.interface import unwrap
from etagere.model.files import EntryPath
from etagere.model.shares import ShareRef
from etagere.protocol.file import decode
from etagere.protocol.rest.authentication import Authenticator
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import invalid_header, required_header
from etagere.protocol.sources import addresses

_HEADER: Final = "x-ms-file-rename-source"
_TRAILING_DOT_HEADER: Final = "x-ms-source-allow-trailing-dot"


async def authorized_source(
    exchange: Exchange, authenticator: Authenticator, permission: Permission
) -> EntryPath:
    """Returns the source of a rename; raises `Refused` if the caller lacks the permission to move
    it."""
    source = _request_for_source(exchange)
    target = decode.target(source, _TRAILING_DOT_HEADER)
    principal = exchange.principal
    if carries_sas(source.request):
        principal = await authenticator.authenticate_source(exchange, source)
    unwrap(authorize(principal, "file", permission, target, version=exchange.challenge_version))
    return EntryPath(
        ShareRef(decode.share_name(source)), decode.components(source, _TRAILING_DOT_HEADER)
    )


def _request_for_source(exchange: Exchange) -> Exchange:
    """Returns the request that the caller could have sent for the source."""
    written = required_header(exchange, _HEADER)
    address = addresses.parse(written)
    if address is None or not is_text(written):
        raise invalid_header(_HEADER, written.partition("?")[0])
    trailing_dot = exchange.header(_TRAILING_DOT_HEADER)
    # A token for HTTPS only is not valid if the request was sent over HTTP.
    is_encrypted = address.scheme == exchange.request.scheme == "https"
    source = exchange.nested(
        "GET",
        f"{address.path}?{address.query}",
        {} if trailing_dot is None else {_TRAILING_DOT_HEADER: trailing_dot},
        host=address.authority,
        scheme="https" if is_encrypted else "http",
    )
    outer, share = exchange.request, exchange.request.resource[0]
    is_same_share = (source.request.account, source.request.resource[0]) == (outer.account, share)
    if not is_same_share or source.parameter("sharesnapshot"):
        raise invalid_header(_HEADER, address.without_secrets())
    return source
