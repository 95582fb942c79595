"""Operations on the service as a whole."""

from __future__ import annotations

from etagere.model.containers import ListContainers
from etagere.operations.blob import containers
from etagere.protocol import requests
from etagere.protocol.answers import XML
from etagere.protocol.blob import decode_listing, pages
from etagere.protocol.blob.handlers.base import Handling
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import Response


class ServiceHandlers(Handling):
    """The service: its containers, and what it says of itself."""

    async def list_containers(self, exchange: Exchange) -> Response:
        command = ListContainers(
            exchange.signed.account,
            requests.page_limit(exchange),
            requests.text_parameter(exchange, "prefix"),
            decode_listing.marker(exchange)[0],
        )
        page = await self._engine.read(containers.list_containers, command)
        include = requests.included(exchange, decode_listing.CONTAINER_DETAILS)
        body = pages.containers_page(page, command, requests.endpoint(exchange), include=include)
        return Response(200, [XML], body)

    async def get_account_information(self, exchange: Exchange) -> Response:
        return Response(
            200,
            [
                (b"x-ms-sku-name", b"Standard_RAGRS"),
                (b"x-ms-account-kind", b"StorageV2"),
                (b"x-ms-is-hns-enabled", b"false"),
            ],
        )
