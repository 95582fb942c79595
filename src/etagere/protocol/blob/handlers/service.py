"""Operations on the service as a whole."""

from __future__ import annotations

from functools import partial
from typing import Final

from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.containers import ListContainers
from etagere.operations.blob import containers
from etagere.protocol.blob import decode_listing, pages
from etagere.protocol.blob.dependencies import BlobDependencies
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import requests
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.listings import listed

_HIERARCHY_SINCE: Final = "2019-07-07"


async def list_containers(exchange: Exchange, deps: BlobDependencies) -> Response:
    limit = requests.page_limit(exchange)
    prefix, marker = requests.text_parameter(exchange, "prefix"), decode_listing.marker(exchange)[0]
    include = requests.included(exchange, decode_listing.CONTAINER_DETAILS)
    account = exchange.request.account
    asked = ListContainers(account, limit, prefix, marker, "system" in include)
    return await listed(
        deps.engine,
        exchange.read_class("listing"),
        containers.list_containers,
        asked,
        partial(pages.container_rows, include=include, version=exchange.version),
        pages.containers_start(exchange),
        pages.containers_end,
    )


async def get_account_information(exchange: Exchange, deps: BlobDependencies) -> Response:
    headers = [(b"x-ms-sku-name", b"Standard_RAGRS"), (b"x-ms-account-kind", b"StorageV2")]
    if exchange.version >= _HIERARCHY_SINCE:
        headers.append((b"x-ms-is-hns-enabled", b"false"))
    return Response(200, headers)


async def refuse_access_control(_: Exchange, __: BlobDependencies) -> Response:
    """Refuses access control of paths, because accounts have no hierarchical namespace."""
    raise Refused(Refusal("HierarchicalNamespaceNotEnabled"))
