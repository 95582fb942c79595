"""Operations on the service as a whole."""

from __future__ import annotations

from functools import partial
from typing import Final

from etagere.model.containers import ListContainers
from etagere.operations.blob import containers
from etagere.protocol import requests
from etagere.protocol.blob import decode_listing, pages
from etagere.protocol.blob.handlers.base import Handling
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import Response
from etagere.protocol.listings import listed

_HIERARCHY_TOLD_SINCE: Final = "2019-07-07"


class ServiceHandlers(Handling):
    """The service: its containers, and what it says of itself."""

    async def list_containers(self, exchange: Exchange) -> Response:
        asked = ListContainers(
            exchange.signed.account,
            requests.page_limit(exchange),
            requests.text_parameter(exchange, "prefix"),
            decode_listing.marker(exchange)[0],
        )
        include = requests.included(exchange, decode_listing.CONTAINER_DETAILS)
        return await listed(
            self._engine,
            exchange.lane("listing"),
            containers.list_containers,
            asked,
            partial(pages.container_rows, include=include, version=exchange.version),
            pages.containers_start(exchange),
            pages.containers_end,
        )

    async def get_account_information(self, exchange: Exchange) -> Response:
        headers = [(b"x-ms-sku-name", b"Standard_RAGRS"), (b"x-ms-account-kind", b"StorageV2")]
        if exchange.version >= _HIERARCHY_TOLD_SINCE:
            headers.append((b"x-ms-is-hns-enabled", b"false"))
        return Response(200, headers)
