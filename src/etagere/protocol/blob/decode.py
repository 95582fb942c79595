"""Decoding of requests to the blob service into commands."""

from __future__ import annotations

from typing import Final

from etagere.auth.permissions import Public
from etagere.auth.request import is_text
from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.blobs import (
    BlobKind,
    BlobName,
    DeleteSnapshots,
    GetBlob,
    GetBlockList,
)
from etagere.model.common import ContentHeaders
from etagere.model.containers import ContainerName, PublicAccess
from etagere.protocol.rest import checksums, leases
from etagere.protocol.rest.conditions import conditions_under, read_conditions
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import bad_parameter, invalid_header, required_header
from etagere.rules import names
from etagere.rules.blocks import check_block_name, decode_block_name
from etagere.rules.dates import parse_instant

# Resources


def container_name(exchange: Exchange) -> ContainerName:
    name, _ = exchange.request.resource
    abort_if(names.check_container_name(name))
    return ContainerName(exchange.request.account, name)


def blob_name(exchange: Exchange) -> BlobName:
    container, name = exchange.request.resource
    abort_if(names.check_container_name(container))
    abort_if(names.check_blob_name(name))
    return BlobName(ContainerName(exchange.request.account, container), name)


def blob_kind(exchange: Exchange) -> BlobKind:
    written = required_header(exchange, "x-ms-blob-type")
    for kind in BlobKind:
        if kind.value.lower() == written.lower():
            return kind
    raise invalid_header("x-ms-blob-type", written)


def snapshot(exchange: Exchange) -> int | None:
    """Returns the time in the parameter `snapshot`."""
    written = exchange.parameter("snapshot")
    if not written:
        return None
    moment = parse_instant(written)
    if moment is None:
        raise bad_parameter("InvalidQueryParameterValue", "snapshot", written)
    return moment


def names_snapshot(exchange: Exchange) -> bool:
    return bool(exchange.parameter("snapshot"))


def refuse_snapshot(exchange: Exchange) -> None:
    """Refuses a snapshot, for operations that do not accept one."""
    written = exchange.parameter("snapshot")
    if written is not None:
        raise bad_parameter("InvalidQueryParameterValue", "snapshot", written)


def get_blob(exchange: Exchange) -> GetBlob:
    return GetBlob(
        blob_name(exchange),
        read_conditions(exchange),
        leases.lease_id(exchange),
        snapshot(exchange),
    )


def public_access(exchange: Exchange) -> PublicAccess:
    written = exchange.header("x-ms-blob-public-access")
    if written is None:
        return PublicAccess.NOTHING
    try:
        access = PublicAccess(written.lower())
    except ValueError:
        raise invalid_header("x-ms-blob-public-access", written) from None
    if access is PublicAccess.NOTHING:
        raise invalid_header("x-ms-blob-public-access", written)
    return access


DEFAULT_TYPE: Final = "application/octet-stream"


def blob_headers(
    exchange: Exchange,
    *,
    standard: bool = False,
    default_type: str = "",
    md5_of_body: bool = False,
) -> ContentHeaders:
    """Returns the headers of the blob. If the body of the request is that of the blob, its
    `standard` headers apply to both, unless there is an `x-ms-blob-` one. `md5_of_body`: the MD5 is
    compared with the body, so it must be valid."""

    def value(name: str, default: str = "") -> str:
        found = exchange.header(f"x-ms-blob-{name}")
        if found is None and standard:
            found = exchange.header(name)
        if found is not None and not is_text(found):
            raise invalid_header(name, found)
        return default if found is None else found

    return ContentHeaders(
        value("content-type", default_type),
        value("content-encoding"),
        value("content-language"),
        value("content-disposition"),
        value("cache-control"),
        _blob_md5(exchange, checksums.MD5_BYTES if md5_of_body else None),
    )


def _blob_md5(exchange: Exchange, size: int | None) -> bytes | None:
    """Returns the MD5 to set. Without a body to compare it with (`size` is None), it is a property
    like the others, of any size. An empty one sets none: AzCopy sends it for page and append blobs.
    """
    name = "x-ms-blob-content-md5"
    if exchange.header(name) == "":
        return None
    return checksums.digest(exchange, name, size, "InvalidMd5")


# Blocks


def block_name(exchange: Exchange) -> bytes:
    written = exchange.parameter("blockid")
    if not written:
        raise Refused(Refusal("MissingRequiredQueryParameter", {"QueryParameterName": "blockid"}))
    name = decode_block_name(written)
    if name is None:
        reason: dict[str, str | int] = {"Reason": "Not a valid base64 string."}
        code = "InvalidQueryParameterValue"
        raise bad_parameter(code, "blockid", written, reason)
    abort_if(check_block_name(name))
    return name


def get_block_list(exchange: Exchange) -> GetBlockList:
    written = exchange.parameter("blocklisttype") or "committed"
    kind = written.lower()
    if kind not in {"committed", "uncommitted", "all"}:
        raise bad_parameter("InvalidQueryParameterValue", "blocklisttype", written)
    return GetBlockList(
        blob_name(exchange),
        kind != "uncommitted",
        kind != "committed",
        leases.lease_id(exchange),
        snapshot(exchange),
        conditions_under(exchange, "").if_tags,
        exchange.permit.public is not Public.NOTHING,
    )


def delete_snapshots(exchange: Exchange) -> DeleteSnapshots:
    written = exchange.header("x-ms-delete-snapshots")
    if not written:
        return DeleteSnapshots.NO
    try:
        return DeleteSnapshots(written.lower())
    except ValueError:
        raise invalid_header("x-ms-delete-snapshots", written) from None
