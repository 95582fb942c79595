"""The properties of a service, and what they decide: which pages of other origins may use it."""

from __future__ import annotations

from typing import Final

from etagere.auth.request import octets
from etagere.engine.interface import Engine, Refused, abort_if
from etagere.errors import Refusal
from etagere.model.service import ServiceProperties
from etagere.operations.service import (
    SetServiceProperties,
    get_service_properties,
    set_service_properties,
)
from etagere.protocol import answers
from etagere.protocol.codecs import service_properties as codec
from etagere.protocol.exchange import VERSION_NEWEST, Exchange
from etagere.protocol.http.messages import Response
from etagere.rules import cors, service_properties
from etagere.rules.accounts import check_account_name

_BYTES_MAX: Final = 64 << 10


class PropertiesHandlers:
    """The same operations for each service."""

    def __init__(self, engine: Engine, service: str) -> None:
        self._engine = engine
        self._service = service

    async def get(self, exchange: Exchange) -> Response:
        properties = await self._properties(exchange)
        body = codec.encode(properties, self._service, exchange.version)
        return Response(200, [answers.XML], body)

    async def set(self, exchange: Exchange) -> Response:
        change = codec.decode(await exchange.http.body.read(_BYTES_MAX))
        if isinstance(change, Refusal):
            raise Refused(change)
        abort_if(service_properties.check(change, self._service, exchange.version))
        command = SetServiceProperties(exchange.signed.account, self._service, change)
        await self._engine.write(set_service_properties, command)
        return Response(202)

    async def stats(self, exchange: Exchange) -> Response:
        if not exchange.signed.secondary:
            raise Refused(Refusal("InvalidQueryParameterValue", {"QueryParameterName": "comp"}))
        return Response(200, [answers.XML], answers.stats())

    async def default_version(self, exchange: Exchange) -> str | None:
        """The version of a request that names none, if the owner of the account has set one."""
        version = (await self._properties(exchange)).default_service_version
        return None if version is None else min(version, VERSION_NEWEST)

    async def preflight(self, exchange: Exchange) -> Response:
        """A browser asks before it has anything to show for itself."""
        answer = cors.preflight(
            (await self._properties(exchange)).cors,
            exchange.header("origin"),
            exchange.header("access-control-request-method"),
            exchange.header("access-control-request-headers"),
        )
        if isinstance(answer, Refusal):
            raise Refused(answer)
        return Response(200, [(octets(name), octets(value)) for name, value in answer])

    async def cors_headers(self, exchange: Exchange, response: Response) -> answers.Headers:
        """What a page of another origin is told with the answer to its request."""
        origin = exchange.header("origin")
        if origin is None or exchange.signed.method == "OPTIONS":
            return []
        rules = (await self._properties(exchange)).cors
        names = [name.decode() for name, _ in response.headers]
        found = cors.actual(rules, origin, exchange.signed.method, names)
        return [(octets(name), octets(value)) for name, value in found]

    async def _properties(self, exchange: Exchange) -> ServiceProperties:
        account = exchange.signed.account
        if check_account_name(account) is not None:
            # Callers of preflights need not be known, nor need the account that they name.
            return ServiceProperties()
        return await self._engine.read(get_service_properties, (account, self._service))
