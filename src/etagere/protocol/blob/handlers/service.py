"""Operations on the service as a whole."""

from __future__ import annotations

from etagere.auth.request import octets
from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.containers import ListContainers
from etagere.model.service import ServiceProperties
from etagere.operations.blob import containers
from etagere.operations.service import (
    SetServiceProperties,
    get_service_properties,
    set_service_properties,
)
from etagere.protocol.blob import decode, encode, pages
from etagere.protocol.blob.handlers.base import XML, XML_BYTES_MAX, Handling
from etagere.protocol.codecs import service_properties
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import Response
from etagere.rules import cors
from etagere.rules import service_properties as service_property_rules
from etagere.rules.accounts import check_account_name


class ServiceHandlers(Handling):
    """The service: its containers, properties and what it says of itself."""

    async def list_containers(self, exchange: Exchange) -> Response:
        command = ListContainers(
            exchange.signed.account,
            decode.page_limit(exchange),
            decode.text_parameter(exchange, "prefix"),
            decode.marker(exchange)[0],
        )
        page = await self._engine.read(containers.list_containers, command)
        include = decode.included(exchange, decode.CONTAINER_DETAILS)
        body = pages.containers_page(page, command, decode.endpoint(exchange), include=include)
        return Response(200, [XML], body)

    async def get_blob_service_properties(self, exchange: Exchange) -> Response:
        properties = await self.service_properties(exchange)
        return Response(200, [XML], service_properties.encode(properties, "blob", exchange.version))

    async def set_blob_service_properties(self, exchange: Exchange) -> Response:
        change = service_properties.decode(await exchange.http.body.read(XML_BYTES_MAX))
        if isinstance(change, Refusal):
            raise Refused(change)
        abort_if(service_property_rules.check(change, "blob", exchange.version))
        command = SetServiceProperties(exchange.signed.account, "blob", change)
        await self._engine.write(set_service_properties, command)
        return Response(202)

    async def service_properties(self, exchange: Exchange) -> ServiceProperties:
        account = exchange.signed.account
        if check_account_name(account) is not None:
            # Callers of preflights need not be known, nor need the account that they name.
            return ServiceProperties()
        return await self._engine.read(get_service_properties, (account, "blob"))

    async def get_blob_service_stats(self, exchange: Exchange) -> Response:
        """There is no second place that could lag behind: it is always as of now."""
        if not exchange.signed.secondary:
            raise Refused(Refusal("InvalidQueryParameterValue", {"QueryParameterName": "comp"}))
        return Response(200, [XML], encode.stats())

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
