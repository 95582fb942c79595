"""Handlers of the operations that every service has: its properties and its statistics."""

from __future__ import annotations

from typing import Final

from etagere.engine.interface import Refused, abort_if, unwrap
from etagere.errors import Refusal
from etagere.protocol.codecs import service_properties as codec
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import responses
from etagere.protocol.rest.dependencies import Dependencies
from etagere.protocol.rest.exchange import Exchange
from etagere.rules import service_properties

_DOCUMENT_BYTES_MAX: Final = 64 << 10


async def get_service_properties(exchange: Exchange, deps: Dependencies) -> Response:
    properties = await deps.properties.read(exchange.request.account)
    body = codec.encode(properties, exchange.request.service, exchange.version)
    return Response(200, [responses.XML], body)


async def set_service_properties(exchange: Exchange, deps: Dependencies) -> Response:
    change = unwrap(codec.decode(await exchange.http.body.read(_DOCUMENT_BYTES_MAX)))
    abort_if(service_properties.check(change, exchange.request.service, exchange.version))
    await deps.properties.change(exchange.request.account, change)
    return Response(202)


async def get_service_stats(exchange: Exchange, _: Dependencies) -> Response:
    """Returns statistics, which only the secondary endpoint has."""
    if not exchange.request.secondary:
        raise Refused(Refusal("InvalidQueryParameterValue", {"QueryParameterName": "comp"}))
    return Response(200, [responses.XML], responses.stats())
