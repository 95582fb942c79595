"""Requests to the blob service, as commands. Raw headers stop here."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from etagere.auth.permissions import Public
from etagere.auth.principal import TokenHolder
from etagere.auth.request import is_text
from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.blobs import (
    BlobHeaders,
    BlobKind,
    BlobName,
    GetBlob,
    GetBlockList,
    SnapshotsToo,
)
from etagere.model.conditions import NO_CONDITIONS, Conditions
from etagere.model.containers import ContainerName, PublicAccess
from etagere.model.leases import (
    Acquire,
    Break,
    Change,
    LeaseAction,
    LeaseVerb,
    Release,
    Renew,
    new_lease_id,
)
from etagere.protocol.codecs import structured_messages
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.ranges import Range, parse_range
from etagere.protocol.requests import (
    NUMBER,
    bad_parameter,
    invalid_header,
    required_header,
)
from etagere.rules import conditions as condition_rules
from etagere.rules import leases as lease_rules
from etagere.rules import names
from etagere.rules import tags as tag_rules
from etagere.rules.blocks import check_block_name, decode_block_name
from etagere.rules.dates import parse_instant

MD5_BYTES = 16
CRC64_BYTES = 8
_CHECKED_RANGE_MAX = 4 << 20


# Which


def container_name(exchange: Exchange) -> ContainerName:
    name, _ = exchange.signed.resource
    abort_if(names.check_container_name(name))
    return ContainerName(exchange.signed.account, name)


def blob_name(exchange: Exchange) -> BlobName:
    container, name = exchange.signed.resource
    abort_if(names.check_container_name(container))
    abort_if(names.check_blob_name(name))
    return BlobName(ContainerName(exchange.signed.account, container), name)


def blob_kind(exchange: Exchange) -> BlobKind:
    written = required_header(exchange, "x-ms-blob-type")
    for kind in BlobKind:
        if kind.value.lower() == written.lower():
            return kind
    raise invalid_header("x-ms-blob-type", written)


def snapshot(exchange: Exchange) -> int | None:
    """The moment that names a snapshot."""
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
    """For what cannot be done to one."""
    written = exchange.parameter("snapshot")
    if written is not None:
        raise bad_parameter("InvalidQueryParameterValue", "snapshot", written)


def get_blob(exchange: Exchange) -> GetBlob:
    return GetBlob(
        blob_name(exchange), read_conditions(exchange), lease_id(exchange), snapshot(exchange)
    )


def read_conditions(exchange: Exchange) -> Conditions:
    asked = _conditions(exchange)
    abort_if(condition_rules.check_read_headers(asked, exchange.version))
    if exchange.version < condition_rules.ANY_COMBINATION_SINCE:
        return condition_rules.without_ignored(asked)
    return asked


def write_conditions(exchange: Exchange) -> Conditions:
    asked = _conditions(exchange)
    abort_if(condition_rules.check_write_headers(asked))
    return asked


def _conditions(exchange: Exchange) -> Conditions:
    fields = exchange.signed.fields
    if "x-ms-if-tags" not in fields and not any(name.startswith("if-") for name in fields):
        return NO_CONDITIONS
    return conditions_under(exchange, "")


def conditions_under(
    exchange: Exchange, prefix: str, tags_header: str = "x-ms-if-tags"
) -> Conditions:
    """The conditions whose headers have this before their names."""
    tags = exchange.header(tags_header)
    if tags is not None:
        abort_if(tag_rules.check_expression(tags))
    return Conditions(
        etags(exchange, f"{prefix}if-match"),
        etags(exchange, f"{prefix}if-none-match"),
        date(exchange, f"{prefix}if-modified-since"),
        date(exchange, f"{prefix}if-unmodified-since"),
        tags,
    )


def etags(exchange: Exchange, name: str) -> tuple[str, ...] | None:
    written = exchange.header(name)
    if written is None:
        return None
    if not is_text(written):
        written = written.encode(errors="replace").decode()
    return condition_rules.parse_etags(written)


def date(exchange: Exchange, name: str) -> int | None:
    written = exchange.header(name)
    if written is None:
        return None
    second = condition_rules.parse_date(name, written)
    if isinstance(second, Refusal):
        raise Refused(second)
    return second


def refuse_conditions(exchange: Exchange) -> None:
    """For what takes none."""
    for name in ("if-match", "if-none-match", "if-modified-since", "if-unmodified-since"):
        if exchange.header(name) is not None:
            raise Refused(Refusal("ConditionHeadersNotSupported", {"HeaderName": name}))


def lease_id(exchange: Exchange, name: str = "x-ms-lease-id") -> bytes | None:
    written = exchange.header(name)
    if written is None:
        return None
    parsed = lease_rules.parse_lease_id(written)
    if parsed is None:
        raise invalid_header(name, written)
    return parsed


def lease_verb(exchange: Exchange) -> LeaseVerb:
    written = required_header(exchange, "x-ms-lease-action")
    try:
        return LeaseVerb(written.lower())
    except ValueError:
        raise invalid_header("x-ms-lease-action", written) from None


def lease_action(exchange: Exchange) -> LeaseAction:
    verb = lease_verb(exchange)
    if verb is LeaseVerb.ACQUIRE:
        proposed = lease_id(exchange, "x-ms-proposed-lease-id")
        return Acquire(proposed or new_lease_id(), _lease_duration(exchange))
    if verb is LeaseVerb.BREAK:
        return Break(integer(exchange, "x-ms-lease-break-period", 0, 60))
    held = _required_id(exchange, "x-ms-lease-id")
    if verb is LeaseVerb.RENEW:
        return Renew(held)
    if verb is LeaseVerb.RELEASE:
        return Release(held)
    return Change(held, _required_id(exchange, "x-ms-proposed-lease-id"))


def _lease_duration(exchange: Exchange) -> int | None:
    name = "x-ms-lease-duration"
    written = required_header(exchange, name)
    if written == "-1":
        return None
    return integer(exchange, name, 15, 60)


def _required_id(exchange: Exchange, name: str) -> bytes:
    required_header(exchange, name)
    parsed = lease_id(exchange, name)
    assert parsed is not None
    return parsed


def integer(exchange: Exchange, name: str, minimum: int, maximum: int) -> int | None:
    written = exchange.header(name)
    if written is None:
        return None
    if NUMBER.fullmatch(written) is None or not minimum <= int(written) <= maximum:
        raise invalid_header(name, written)
    return int(written)


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
) -> BlobHeaders:
    """How the blob is to be described. Where the body of a request is that of the blob, its
    `standard` headers describe both, unless there is an `x-ms-blob-` one. `md5_of_body`: the MD5
    of the blob is compared with a body, so that it has to be one."""

    def value(name: str, default: str = "") -> str:
        found = exchange.header(f"x-ms-blob-{name}")
        if found is None and standard:
            found = exchange.header(name)
        if found is not None and not is_text(found):
            raise invalid_header(name, found)
        return default if found is None else found

    return BlobHeaders(
        value("content-type", default_type),
        value("content-encoding"),
        value("content-language"),
        value("content-disposition"),
        value("cache-control"),
        # Where there is no body to hold it against, it is a property like the others, of any size.
        digest(exchange, "x-ms-blob-content-md5", MD5_BYTES if md5_of_body else None, "InvalidMd5"),
    )


def digest(exchange: Exchange, name: str, size: int | None, code: str) -> bytes | None:
    written = exchange.header(name)
    if written is None:
        return None
    try:
        decoded = base64.b64decode(written, validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if not decoded or size not in (None, len(decoded)):
        raise Refused(Refusal(code, {"HeaderName": name, "HeaderValue": written}))
    return decoded


def sent_md5(exchange: Exchange) -> bytes | None:
    return digest(exchange, "content-md5", MD5_BYTES, "InvalidMd5")


def sent_crc64(exchange: Exchange) -> int | None:
    found = digest(exchange, "x-ms-content-crc64", CRC64_BYTES, "InvalidHeaderValue")
    return None if found is None else int.from_bytes(found, "little")


def is_structured(exchange: Exchange) -> bool:
    """Whether the body that is sent, or the one that is asked for, is a structured message."""
    written = exchange.header("x-ms-structured-body")
    if written is None:
        return False
    if not structured_messages.is_known_kind(written):
        raise invalid_header("x-ms-structured-body", written)
    return True


def structured_content_length(exchange: Exchange, body_length: int) -> int | None:
    """Of the content of a structured message, which has to fit the length of the message; None
    if the body is the content."""
    name = "x-ms-structured-content-length"
    if not is_structured(exchange):
        if exchange.header(name) is not None:
            # Or what frames a message would be stored as if it were content.
            required_header(exchange, "x-ms-structured-body")
        return None
    written = required_header(exchange, name)
    fits = NUMBER.fullmatch(written) is not None
    if not fits or structured_messages.segment_count(body_length, int(written)) is None:
        raise invalid_header(name, written)
    return int(written)


def refuse_range_checksums(exchange: Exchange) -> None:
    """For a read of the whole blob: only those of ranges are told."""
    for kind in ("md5", "crc64"):
        name = f"x-ms-range-get-content-{kind}"
        if (exchange.header(name) or "").lower() == "true":
            raise invalid_header(name, "true")


def wanted_checksums(exchange: Exchange, length: int) -> set[str]:
    """Which checksums of a range are asked for; one at a time, of a range that is not large."""
    wanted = {
        kind
        for kind in ("md5", "crc64")
        if (exchange.header(f"x-ms-range-get-content-{kind}") or "").lower() == "true"
    }
    if len(wanted) > 1:
        raise invalid_header("x-ms-range-get-content-crc64", "true")
    if wanted and length > _CHECKED_RANGE_MAX:
        facts: dict[str, str | int] = {"Input": "Range", "Maximum": _CHECKED_RANGE_MAX}
        raise Refused(Refusal("OutOfRangeInput", facts))
    return wanted


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
        lease_id(exchange),
        snapshot(exchange),
        conditions_under(exchange, "").if_tags,
        exchange.permit.public is not Public.NOTHING,
    )


def byte_range(exchange: Exchange) -> Range | None:
    written = exchange.header("x-ms-range") or exchange.header("range")
    return None if written is None else parse_range(written)


def snapshots_too(exchange: Exchange) -> SnapshotsToo:
    written = exchange.header("x-ms-delete-snapshots")
    if not written:
        return SnapshotsToo.NO
    try:
        return SnapshotsToo(written.lower())
    except ValueError:
        raise invalid_header("x-ms-delete-snapshots", written) from None


def overrides(exchange: Exchange) -> dict[str, str]:
    """Response headers that a token replaces."""
    principal = exchange.principal
    return principal.overrides if isinstance(principal, TokenHolder) else {}
