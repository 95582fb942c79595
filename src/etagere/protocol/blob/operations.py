"""The operations of the blob service: one row each.

A row names its routes (method, level, `comp`, `restype`, and whether there is a source), the
permission that the caller needs, what the operation accepts, and its handler. `refuse_unaccepted`
refuses parameters and headers that an operation does not accept, because a client that sends one
would otherwise misread the response.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from etagere.auth.permissions import (
    READ_BLOB,
    Permission,
    Public,
    on_account_information,
    on_batch,
    on_batch_in_container,
    on_blob,
    on_blob_deletion,
    on_blob_or_snapshot,
    on_blobs_of_account,
    on_blobs_of_container,
    on_blocks,
    on_container,
    on_delegation_key,
    on_list_of_blobs,
    on_service,
    on_service_properties,
)
from etagere.auth.principal import TokenHolder
from etagere.auth.request import is_access_control_request
from etagere.auth.roles import Right
from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.base import KeyEnum
from etagere.model.leases import LeaseVerb
from etagere.protocol.blob import decode
from etagere.protocol.blob.handlers import (
    appends,
    batches,
    blobs,
    blocks,
    containers,
    copies,
    from_urls,
    page_blobs,
    service,
    tags,
    tiers,
)
from etagere.protocol.rest import delegation, leases, operations, service_operations
from etagere.protocol.rest.conditions import refuse_conditions, refuse_tag_conditions
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.operations import (
    Operation,
    Route,
    index_routes,
    is_change,
    restypes_of,
)
from etagere.rules.names import check_container_write


class Level(KeyEnum):
    """The kind of resource in the address of a request."""

    SERVICE = enum.auto()
    CONTAINER = enum.auto()
    BLOB = enum.auto()


class Source(enum.Enum):
    """The meaning of `x-ms-copy-source` in a request."""

    COPY = enum.auto()
    """Copy the source asynchronously."""
    SYNCHRONOUS_COPY = enum.auto()
    """Copy the source synchronously."""
    UPLOAD = enum.auto()
    """Store the bytes of the source in a blob of a given type."""


SERVICE, CONTAINER, BLOB = Level


def _no_letters(_: Exchange) -> str:
    return ""


def _letters_to_set_tags(exchange: Exchange) -> str:
    return "t" if exchange.header("x-ms-tags") else ""


def _letters_to_list_tags(exchange: Exchange) -> str:
    included = (exchange.parameter("include") or "").lower().split(",")
    return "t" if "tags" in map(str.strip, included) else ""


@dataclass(frozen=True, kw_only=True, eq=False)
class BlobOperation(Operation):
    """One row: an operation of the blob service."""

    break_permission: Permission | None = None
    """The permission for the lease action `break`, of an operation on leases."""
    conditions: bool = True
    """Whether it accepts conditions on ETags and dates."""
    tag_conditions: bool = True
    """Whether it accepts conditions on tags, for operations on blobs: nothing else has tags."""
    snapshot: bool = False
    """Whether it accepts the parameter `snapshot`."""
    writes: bool | None = None
    """Whether it writes to the container that the request names: blobs into it, or the container
    itself. None: if it changes anything."""
    ignores_blob_parameters: bool = False
    """Whether parameters and headers about blobs are not checked."""
    extra_letters: Callable[[Exchange], str] = _no_letters
    """Returns the letters that a token needs in addition to those of the permission."""

    @property
    def permissions(self) -> Mapping[str, Permission]:
        if self.break_permission is None:
            return super().permissions
        leased = self.name.removeprefix("lease_")
        return {
            f"{verb.value}_{leased}_lease": self.break_permission
            if verb is LeaseVerb.BREAK
            else self.permission
            for verb in LeaseVerb
        }


# The formatter would spread each row over many lines.
# fmt: off
OPERATIONS: Final = (
    # The service
    BlobOperation(
        name="list_containers", handler=service.list_containers,
        permission=on_service("l"),
        routes=(Route("GET", SERVICE, "list"),), conditions=False),
    BlobOperation(
        name="get_blob_service_properties", handler=service_operations.get_service_properties,
        permission=on_service_properties("r"),
        routes=(Route("GET", SERVICE, "properties", "service"),),
        conditions=False, ignores_blob_parameters=True),
    BlobOperation(
        name="set_blob_service_properties", handler=service_operations.set_service_properties,
        permission=on_service_properties("w"),
        routes=(Route("PUT", SERVICE, "properties", "service"),),
        conditions=False, ignores_blob_parameters=True),
    BlobOperation(
        name="get_blob_service_stats", handler=service_operations.get_service_stats,
        permission=on_service_properties("r"),
        routes=(Route("GET", SERVICE, "stats", "service"),),
        conditions=False, ignores_blob_parameters=True),
    BlobOperation(
        name="get_user_delegation_key", handler=delegation.get_user_delegation_key,
        permission=on_delegation_key(),
        routes=(Route("POST", SERVICE, "userdelegationkey", "service"),),
        conditions=False, ignores_blob_parameters=True),
    BlobOperation(
        name="get_account_information", handler=service.get_account_information,
        permission=on_account_information("r"),
        routes=tuple(Route("GET", level, "properties", "account") for level in Level),
        conditions=False, tag_conditions=False),
    BlobOperation(
        name="find_blobs_by_tags", handler=tags.find_blobs_by_tags,
        permission=on_blobs_of_account("f"),
        routes=(Route("GET", SERVICE, "blobs"),), conditions=False),
    BlobOperation(
        name="blob_batch", handler=batches.blob_batch, conditions=False,
        permission=on_batch(right=Right.WRITE),
        # With a `restype`, as sent by the JavaScript SDK if the account is in the path: it takes
        # that for a container.
        routes=(Route("POST", SERVICE, "batch"), Route("POST", SERVICE, "batch", "container"))),
    # Containers
    BlobOperation(
        name="create_container", handler=containers.create_container,
        permission=on_container("c|w"),
        routes=(Route("PUT", CONTAINER, "", "container"),), conditions=False),
    BlobOperation(
        name="get_container_properties", handler=containers.get_container_properties,
        permission=on_container("r", Public.CONTAINER),
        routes=(Route("GET", CONTAINER, "", "container"),), conditions=False),
    BlobOperation(
        name="delete_container", handler=containers.delete_container,
        permission=on_container("d"),
        routes=(Route("DELETE", CONTAINER, "", "container"),)),
    BlobOperation(
        name="get_container_metadata", handler=containers.get_container_metadata,
        permission=on_container("r", Public.CONTAINER),
        routes=(Route("GET", CONTAINER, "metadata", "container"),), conditions=False),
    BlobOperation(
        name="set_container_metadata", handler=containers.set_container_metadata,
        permission=on_container("w"),
        routes=(Route("PUT", CONTAINER, "metadata", "container"),)),
    BlobOperation(
        name="get_container_acl", handler=containers.get_container_acl,
        permission=on_container(None),
        routes=(Route("GET", CONTAINER, "acl", "container"),), conditions=False),
    BlobOperation(
        name="set_container_acl", handler=containers.set_container_acl,
        permission=on_container(None),
        routes=(Route("PUT", CONTAINER, "acl", "container"),)),
    BlobOperation(
        name="lease_container", handler=containers.lease_container,
        permission=on_container("w"), break_permission=on_container("d|w"),
        routes=(Route("PUT", CONTAINER, "lease", "container"),)),
    BlobOperation(
        name="list_blobs", handler=containers.list_blobs,
        permission=on_list_of_blobs("l", Public.CONTAINER),
        routes=(Route("GET", CONTAINER, "list", "container"),),
        conditions=False, extra_letters=_letters_to_list_tags),
    BlobOperation(
        name="find_blobs_by_tags_in_container", handler=tags.find_blobs_by_tags_in_container,
        permission=on_blobs_of_container("f"),
        routes=(Route("GET", CONTAINER, "blobs", "container"),), conditions=False),
    BlobOperation(
        name="blob_batch_in_container", handler=batches.blob_batch_in_container,
        permission=on_batch_in_container(),
        # Each part of a batch is checked by itself.
        routes=(Route("POST", CONTAINER, "batch", "container"),), conditions=False, writes=False),
    # Blobs
    BlobOperation(
        name="put_blob", handler=blobs.put_blob,
        permission=on_blob("w", if_absent="c"),
        routes=(Route("PUT", BLOB),), extra_letters=_letters_to_set_tags),
    BlobOperation(
        name="put_blob_from_url", handler=from_urls.put_blob_from_url,
        permission=on_blob("w", if_absent="c"),
        routes=(Route("PUT", BLOB, variant=Source.UPLOAD),), extra_letters=_letters_to_set_tags),
    BlobOperation(
        name="copy_blob", handler=copies.copy_blob,
        permission=on_blob("w", if_absent="c"),
        routes=(Route("PUT", BLOB, variant=Source.COPY),), extra_letters=_letters_to_set_tags),
    BlobOperation(
        name="copy_blob_from_url", handler=copies.copy_blob_from_url,
        permission=on_blob("w", if_absent="c"),
        routes=(Route("PUT", BLOB, variant=Source.SYNCHRONOUS_COPY),),
        extra_letters=_letters_to_set_tags),
    BlobOperation(
        name="incremental_copy_blob", handler=copies.incremental_copy_blob,
        permission=on_blob("w", if_absent="c"),
        routes=(Route("PUT", BLOB, "incrementalcopy"),)),
    BlobOperation(
        name="abort_copy_blob", handler=copies.abort_copy_blob,
        permission=on_blob("w"),
        routes=(Route("PUT", BLOB, "copy"),), conditions=False, tag_conditions=False),
    BlobOperation(
        name="get_blob", handler=blobs.get_blob,
        permission=READ_BLOB,
        routes=(Route("GET", BLOB),), snapshot=True),
    BlobOperation(
        name="get_blob_properties", handler=blobs.get_blob_properties,
        permission=READ_BLOB,
        routes=(Route("HEAD", BLOB),), snapshot=True),
    BlobOperation(
        name="get_blob_metadata", handler=blobs.get_blob_metadata,
        permission=READ_BLOB,
        routes=(Route("GET", BLOB, "metadata"),), snapshot=True),
    BlobOperation(
        name="set_blob_metadata", handler=blobs.set_blob_metadata,
        permission=on_blob("w"),
        routes=(Route("PUT", BLOB, "metadata"),)),
    BlobOperation(
        name="set_blob_properties", handler=blobs.set_blob_properties,
        permission=on_blob("w"),
        routes=(Route("PUT", BLOB, "properties"),)),
    BlobOperation(
        name="lease_blob", handler=blobs.lease_blob,
        permission=on_blob("w"), break_permission=on_blob("d|w"),
        routes=(Route("PUT", BLOB, "lease"),)),
    BlobOperation(
        name="snapshot_blob", handler=blobs.snapshot_blob,
        permission=on_blob("c|w"),
        routes=(Route("PUT", BLOB, "snapshot"),)),
    BlobOperation(
        name="delete_blob", handler=blobs.delete_blob,
        permission=on_blob_deletion("d"),
        routes=(Route("DELETE", BLOB),), snapshot=True, writes=False),
    BlobOperation(
        name="set_blob_tier", handler=tiers.set_blob_tier,
        permission=on_blob_or_snapshot("w"),
        routes=(Route("PUT", BLOB, "tier"),), conditions=False, snapshot=True),
    BlobOperation(
        name="get_blob_tags", handler=tags.get_blob_tags,
        permission=on_blob_or_snapshot("t"),
        routes=(Route("GET", BLOB, "tags"),), snapshot=True),
    BlobOperation(
        name="set_blob_tags", handler=tags.set_blob_tags,
        permission=on_blob_or_snapshot("t"),
        routes=(Route("PUT", BLOB, "tags"),), snapshot=True),
    # Block blobs
    BlobOperation(
        name="put_block", handler=blocks.put_block,
        permission=on_blocks("w", if_absent="c"),
        routes=(Route("PUT", BLOB, "block"),), conditions=False, tag_conditions=False),
    BlobOperation(
        name="put_block_from_url", handler=from_urls.put_block_from_url,
        permission=on_blocks("w", if_absent="c"),
        routes=tuple(Route("PUT", BLOB, "block", variant=source) for source in Source),
        conditions=False, tag_conditions=False),
    BlobOperation(
        name="put_block_list", handler=blocks.put_block_list,
        permission=on_blocks("w", if_absent="c"),
        routes=(Route("PUT", BLOB, "blocklist"),), extra_letters=_letters_to_set_tags),
    BlobOperation(
        name="get_block_list", handler=blocks.get_block_list,
        permission=READ_BLOB,
        routes=(Route("GET", BLOB, "blocklist"),), conditions=False, snapshot=True),
    # Append blobs
    BlobOperation(
        name="append_block", handler=appends.append_block,
        permission=on_blob("a|w"),
        routes=(Route("PUT", BLOB, "appendblock"),)),
    BlobOperation(
        name="append_block_from_url", handler=from_urls.append_block_from_url,
        permission=on_blob("a|w"),
        routes=tuple(Route("PUT", BLOB, "appendblock", variant=source) for source in Source)),
    BlobOperation(
        name="append_blob_seal", handler=appends.append_blob_seal,
        permission=on_blob("w"),
        routes=(Route("PUT", BLOB, "seal"),)),
    # Page blobs
    BlobOperation(
        name="put_page", handler=page_blobs.put_page,
        permission=on_blob("w"),
        routes=(Route("PUT", BLOB, "page"),)),
    BlobOperation(
        name="put_page_from_url", handler=from_urls.put_page_from_url,
        permission=on_blob("w"),
        routes=tuple(Route("PUT", BLOB, "page", variant=source) for source in Source)),
    BlobOperation(
        name="get_page_ranges", handler=page_blobs.get_page_ranges,
        permission=READ_BLOB,
        routes=(Route("GET", BLOB, "pagelist"),), snapshot=True),
)
# fmt: on

GET_ACCESS_CONTROL: Final = BlobOperation(
    name="get_access_control",
    handler=service.refuse_access_control,
    # Selected by the parameter `action` alone.
    routes=(),
    permission=on_account_information("r"),
    ignores_blob_parameters=True,
)
"""The request by which Data Lake clients find out whether an account is hierarchical."""

_INDEX: Final = index_routes(OPERATIONS, Source)
_RESTYPES: Final = {level: restypes_of(_INDEX, level) for level in Level}


def find_operation(exchange: Exchange) -> BlobOperation | None:
    """Returns the operation of a request, or None if there is no such operation."""
    request = exchange.request
    method, level = request.method, _level(exchange)
    parameters, fields = request.parameters, request.fields
    if method == "HEAD" and is_access_control_request(parameters):
        return GET_ACCESS_CONTROL
    comp, restype = parameters.get("comp", "").lower(), parameters.get("restype", "").lower()
    if method == "HEAD" and level is BLOB and not comp:
        restype = ""
    source = _source(exchange) if "x-ms-copy-source" in fields else None
    return _INDEX.get((method, level, comp, restype, source))


def refuse_unrouted(exchange: Exchange) -> Refused:
    """Returns the refusal of a request for which there is no operation."""
    level = _level(exchange)
    return operations.refuse_unrouted(exchange, _RESTYPES[level], service=level is SERVICE)


def _level(exchange: Exchange) -> Level:
    container, blob = exchange.request.resource
    return BLOB if blob else CONTAINER if container else SERVICE


def _source(exchange: Exchange) -> Source:
    if exchange.header("x-ms-blob-type") is not None:
        return Source.UPLOAD
    is_synchronous = (exchange.header("x-ms-requires-sync") or "").lower() == "true"
    return Source.SYNCHRONOUS_COPY if is_synchronous else Source.COPY


def permission_of(operation: BlobOperation, exchange: Exchange) -> Permission:
    """Returns the permission that a request needs. Only callers that may acquire a lease learn that
    the lease action of their request is not valid."""
    if operation.break_permission is None:
        return operation.permission
    try:
        verb = leases.lease_verb(exchange)
    except Refused:
        return operation.permission
    return operation.break_permission if verb is LeaseVerb.BREAK else operation.permission


def extra_letters(operation: BlobOperation, exchange: Exchange) -> str:
    """Returns the letters that a token needs in addition to those of the permission: conditions on
    tags need the permission to read them."""
    if exchange.header("x-ms-if-tags") is not None and _accepts_tag_conditions(operation, exchange):
        return "t"
    return operation.extra_letters(exchange)


# Unsupported parameters and headers that would change the meaning of a request are refused rather
# than ignored.
_UNSUPPORTED_PARAMETERS: Final = ("versionid", "deletetype")
_UNSUPPORTED_HEADERS: Final = (
    "x-ms-encryption-key",
    "x-ms-encryption-scope",
    "x-ms-default-encryption-scope",
    "x-ms-immutability-policy-until-date",
    "x-ms-immutability-policy-mode",
    "x-ms-legal-hold",
)


def refuse_unaccepted(operation: BlobOperation, exchange: Exchange) -> None:
    """Refuses containers, parameters and headers that the operation does not accept."""
    request = exchange.request
    if is_change(operation, request.method) if operation.writes is None else operation.writes:
        abort_if(check_container_write(request.resource[0]))
    if not operation.ignores_blob_parameters:
        _refuse_unsupported(exchange)
    if not operation.conditions:
        refuse_conditions(exchange)
    if not _accepts_tag_conditions(operation, exchange):
        refuse_tag_conditions(exchange)
    if not (operation.snapshot or operation.ignores_blob_parameters):
        decode.refuse_snapshot(exchange)


def _accepts_tag_conditions(operation: BlobOperation, exchange: Exchange) -> bool:
    _, blob = exchange.request.resource
    return operation.tag_conditions and bool(blob)


def _refuse_unsupported(exchange: Exchange) -> None:
    parameters, fields = exchange.request.parameters, exchange.request.fields
    for name in _UNSUPPORTED_PARAMETERS:
        if name in parameters:
            raise Refused(Refusal("UnsupportedQueryParameter", {"QueryParameterName": name}))
    for name in _UNSUPPORTED_HEADERS:
        if name in fields:
            raise Refused(Refusal("UnsupportedHeader", {"HeaderName": name}))
    principal = exchange.principal
    if isinstance(principal, TokenHolder) and principal.encryption_scope:
        # Writes would have to be encrypted with it.
        raise Refused(Refusal("UnsupportedQueryParameter", {"QueryParameterName": "ses"}))
