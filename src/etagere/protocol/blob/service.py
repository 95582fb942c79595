"""The blob service: each request to its operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from etagere.bodies.files import FileBodyStore
from etagere.engine.interface import Engine, Refused
from etagere.errors import Refusal
from etagere.model.leases import LeaseVerb
from etagere.protocol.access_log import AccessLog
from etagere.protocol.blob import decode
from etagere.protocol.blob.handlers import Handlers
from etagere.protocol.blob.routes import Level, find_route
from etagere.protocol.exchange import Exchange
from etagere.protocol.gate import Gate
from etagere.protocol.http.messages import Response
from etagere.protocol.service import Routed, Service, no_route

LEASED: Final = {"lease_container": "container", "lease_blob": "blob"}

_OF_SNAPSHOTS_TOO: Final = frozenset(
    {"get_blob", "get_blob_properties", "get_blob_metadata", "get_block_list", "delete_blob"}
)
"""What can be done to a snapshot as to a blob."""

# What would change the meaning of a request, and is not carried out yet: better refused than
# done to something else.
_NOT_YET_PARAMETERS: Final = ("versionid", "deletetype")
_NOT_YET_HEADERS: Final = (
    "x-ms-copy-source",
    "x-ms-encryption-key",
    "x-ms-encryption-scope",
    "x-ms-if-tags",
    "x-ms-tags",
)


class BlobService(Service):
    """Containers and blobs."""

    name = "blob"

    def __init__(
        self, engine: Engine, store: FileBodyStore, gate: Gate, access_log: AccessLog
    ) -> None:
        super().__init__(engine, gate, access_log)
        self._handlers = Handlers(engine, store)
        self._of_service = {
            "get_blob_service_properties": self._properties.get,
            "set_blob_service_properties": self._properties.set,
            "get_blob_service_stats": self._properties.stats,
        }

    def route(self, exchange: Exchange) -> Routed:
        method = exchange.signed.method
        container, blob = exchange.signed.resource
        restype, comp = exchange.parameter("restype") or "", exchange.parameter("comp") or ""
        level, name = find_route(method, container, blob, restype, comp)
        if name is None:
            raise no_route(method, comp)
        target = "" if level is Level.SERVICE else container + (f"/{blob}" if blob else "")
        of_service = self._of_service.get(name)
        if of_service is not None:
            return Routed(name, target, of_service)
        return Routed(_permission(exchange, name), target, self._carefully(name))

    def _carefully(self, name: str) -> Callable[[Exchange], Awaitable[Response]]:
        """Refuses what would be done to something else than was meant."""
        handler: Callable[[Exchange], Awaitable[Response]] = getattr(self._handlers, name)

        def call(exchange: Exchange) -> Awaitable[Response]:
            _refuse_what_is_not_there_yet(exchange)
            if name not in _OF_SNAPSHOTS_TOO:
                decode.refuse_snapshot(exchange)
            return handler(exchange)

        return call


def _permission(exchange: Exchange, operation: str) -> str:
    """The row of the table of permissions; of a lease, that of its action. Who names no action
    is told so, but only if it could have been carried out."""
    leased = LEASED.get(operation)
    if leased is None:
        return operation
    try:
        verb = decode.lease_verb(exchange)
    except Refused:
        verb = LeaseVerb.ACQUIRE
    return f"{verb.value}_{leased}_lease"


def _refuse_what_is_not_there_yet(exchange: Exchange) -> None:
    for name in _NOT_YET_PARAMETERS:
        if exchange.parameter(name) is not None:
            raise Refused(Refusal("UnsupportedQueryParameter", {"QueryParameterName": name}))
    for name in _NOT_YET_HEADERS:
        if exchange.header(name) is not None:
            raise Refused(Refusal("UnsupportedHeader", {"HeaderName": name}))
