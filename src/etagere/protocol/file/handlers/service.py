"""List Shares."""

from __future__ import annotations

from functools import partial

from etagere.operations.file import listing
from etagere.protocol.file import decode_shares, encode_shares
from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.listings import listed


async def list_shares(exchange: Exchange, deps: FileDependencies) -> Response:
    asked, include = decode_shares.list_shares(exchange)
    return await listed(
        deps.engine,
        exchange.read_class("listing"),
        listing.list_shares,
        asked,
        partial(encode_shares.share_rows, include=include, version=exchange.version),
        encode_shares.shares_start(exchange),
        encode_shares.shares_end,
    )
