"""The blob service: each request to its operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from etagere.auth.principal import TokenHolder
from etagere.auth.request import asks_access_control
from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.leases import LeaseVerb
from etagere.protocol.access_log import AccessLog
from etagere.protocol.blob import decode
from etagere.protocol.blob.handlers import Handlers
from etagere.protocol.blob.handlers.base import Means
from etagere.protocol.blob.routes import Level, find_route, from_source
from etagere.protocol.exchange import Exchange
from etagere.protocol.gate import Gate
from etagere.protocol.http.messages import Response
from etagere.protocol.http.sharing import FrontEndShare
from etagere.protocol.service import Routed, Service, no_route

Handler = Callable[[Exchange], Awaitable[Response]]

LEASED: Final = {"lease_container": "container", "lease_blob": "blob"}

_OF_SNAPSHOTS_TOO: Final = frozenset(
    {
        "get_blob",
        "get_blob_properties",
        "get_blob_metadata",
        "get_block_list",
        "get_page_ranges",
        "get_blob_tags",
        "set_blob_tags",
        "set_blob_tier",
        "delete_blob",
    }
)
"""What can be done to a snapshot as to a blob."""

_TAGGING: Final = frozenset(
    {"put_blob", "put_block_list", "put_blob_from_url", "copy_blob", "copy_blob_from_url"}
)
"""What can give a blob tags as it is written."""

_UNCONDITIONAL: Final = frozenset(
    {
        "list_containers",
        "find_blobs_by_tags",
        "blob_batch",
        "get_account_information",
        "create_container",
        "get_container_properties",
        "get_container_metadata",
        "get_container_acl",
        "list_blobs",
        "find_blobs_by_tags_in_container",
        "blob_batch_in_container",
        "put_block",
        "put_block_from_url",
        "get_block_list",
        "set_blob_tier",
        "abort_copy_blob",
    }
)
"""What takes no conditions on ETags and dates. They are refused: a client that sends one would
take the answer for that to its condition."""

# What would change the meaning of a request, and is not carried out yet: better refused than
# done to something else.
_NOT_YET_PARAMETERS: Final = ("versionid", "deletetype")
_NOT_YET_HEADERS: Final = (
    "x-ms-encryption-key",
    "x-ms-encryption-scope",
    "x-ms-default-encryption-scope",
    "x-ms-immutability-policy-until-date",
    "x-ms-immutability-policy-mode",
    "x-ms-legal-hold",
)


class BlobService(Service):
    """Containers and blobs."""

    name = "blob"

    def __init__(
        self, means: Means, gate: Gate, access_log: AccessLog, share: FrontEndShare | None = None
    ) -> None:
        super().__init__(means.engine, gate, access_log, share)
        self._handlers = Handlers(means, self.answer_part)
        self._of_service = {
            "get_blob_service_properties": self._properties.get,
            "set_blob_service_properties": self._properties.set,
            "get_blob_service_stats": self._properties.stats,
        }

    def route(self, exchange: Exchange) -> Routed:
        method = exchange.signed.method
        container, blob = exchange.signed.resource
        if method == "HEAD" and asks_access_control(exchange.signed.parameters):
            target = container + (f"/{blob}" if blob else "")
            return Routed("get_account_information", target, _refuse_access_control)
        restype, comp = exchange.parameter("restype") or "", exchange.parameter("comp") or ""
        level, name = find_route(method, container, blob, restype, comp)
        if name is None:
            raise no_route(method, comp)
        if exchange.header("x-ms-copy-source") is not None:
            name = _from_source(exchange, name)
        target = "" if level is Level.SERVICE else container + (f"/{blob}" if blob else "")
        of_service = self._of_service.get(name)
        if of_service is not None:
            return Routed(name, target, _unconditionally(of_service))
        permission = _permission(exchange, name)
        return Routed(permission, target, self._carefully(name), also=_also(exchange, name))

    def _carefully(self, name: str) -> Handler:
        """Refuses what would be done to something else than was meant."""
        handler: Handler = getattr(self._handlers, name)

        def call(exchange: Exchange) -> Awaitable[Response]:
            _refuse_what_is_not_there_yet(exchange)
            if name in _UNCONDITIONAL:
                decode.refuse_conditions(exchange)
            if name not in _OF_SNAPSHOTS_TOO:
                decode.refuse_snapshot(exchange)
            return handler(exchange)

        return call


async def _refuse_access_control(_: Exchange) -> Response:
    """Accounts are flat: there are no access control lists of paths."""
    raise Refused(Refusal("HierarchicalNamespaceNotEnabled"))


def _unconditionally(handler: Handler) -> Handler:
    def call(exchange: Exchange) -> Awaitable[Response]:
        decode.refuse_conditions(exchange)
        return handler(exchange)

    return call


def _from_source(exchange: Exchange, operation: str) -> str:
    has_kind = exchange.header("x-ms-blob-type") is not None
    at_once = (exchange.header("x-ms-requires-sync") or "").lower() == "true"
    return from_source(operation, has_kind=has_kind, at_once=at_once)


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


def _also(exchange: Exchange, operation: str) -> str:
    """Whoever gives a blob tags as it is written needs the right to set them, and whoever lists
    blobs with their tags, or asks something of tags, that to read them."""
    if exchange.header("x-ms-if-tags") is not None:
        return "t"
    if operation == "list_blobs":
        asked = (exchange.parameter("include") or "").lower().split(",")
        return "t" if "tags" in map(str.strip, asked) else ""
    return "t" if operation in _TAGGING and exchange.header("x-ms-tags") else ""


def _refuse_what_is_not_there_yet(exchange: Exchange) -> None:
    for name in _NOT_YET_PARAMETERS:
        if exchange.parameter(name) is not None:
            raise Refused(Refusal("UnsupportedQueryParameter", {"QueryParameterName": name}))
    for name in _NOT_YET_HEADERS:
        if exchange.header(name) is not None:
            raise Refused(Refusal("UnsupportedHeader", {"HeaderName": name}))
    principal = exchange.principal
    if isinstance(principal, TokenHolder) and principal.encryption_scope:
        # What it writes must be encrypted with that.
        raise Refused(Refusal("UnsupportedQueryParameter", {"QueryParameterName": "ses"}))
