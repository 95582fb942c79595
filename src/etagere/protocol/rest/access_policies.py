"""Stored access policies of containers, queues, tables and shares, in requests and responses."""

from __future__ import annotations

from collections.abc import Sequence

from etagere.engine.interface import unwrap
from etagere.model.service import SignedIdentifier
from etagere.protocol.codecs import access_policies as codec
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.responses import XML, Headers


async def read_policies(exchange: Exchange) -> tuple[SignedIdentifier, ...]:
    """Returns the policies that the body of a request sets."""
    document = await exchange.http.body.read(codec.BYTES_MAX)
    return unwrap(codec.decode(document, exchange.request.service))


def policies_response(
    policies: Sequence[SignedIdentifier], headers: Headers | None = None
) -> Response:
    return Response(200, [*(headers or []), XML], codec.encode(policies))
