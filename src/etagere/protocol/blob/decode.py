"""Requests to the blob service, as commands. Raw headers stop here."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from etagere.auth.principal import TokenHolder
from etagere.auth.request import text
from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.blobs import (
    BlobHeaders,
    BlobName,
    ContainerName,
    Metadata,
    PublicAccess,
)
from etagere.model.conditions import Conditions
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
from etagere.protocol.exchange import Exchange
from etagere.rules import conditions as condition_rules
from etagere.rules import leases as lease_rules
from etagere.rules import names

_META: Final = b"x-ms-meta-"
_PAGE_MAX = 5_000
_MD5_BYTES = 16
_CRC64_BYTES = 8
_CHECKED_RANGE_MAX = 4 << 20


def container_name(exchange: Exchange) -> ContainerName:
    name, _ = exchange.signed.resource
    abort_if(names.check_container_name(name))
    return ContainerName(exchange.signed.account, name)


def blob_name(exchange: Exchange) -> BlobName:
    container, name = exchange.signed.resource
    abort_if(names.check_container_name(container))
    abort_if(names.check_blob_name(name))
    return BlobName(ContainerName(exchange.signed.account, container), name)


def metadata(exchange: Exchange) -> Metadata:
    """Names keep the case in which they were sent."""
    pairs = tuple(
        (text(name[len(_META) :]), text(value))
        for name, value in exchange.http.headers
        if name[: len(_META)].lower() == _META
    )
    abort_if(names.check_metadata(pairs))
    return pairs


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
    if not any(name.startswith("if-") for name in fields):
        return Conditions()
    return Conditions(
        _etags(exchange, "if-match"),
        _etags(exchange, "if-none-match"),
        _date(exchange, "if-modified-since"),
        _date(exchange, "if-unmodified-since"),
    )


def _etags(exchange: Exchange, name: str) -> tuple[str, ...] | None:
    written = exchange.header(name)
    if written is None:
        return None
    etags = condition_rules.parse_etags(written)
    if etags is None:
        raise invalid_header(name, written)
    return etags


def _date(exchange: Exchange, name: str) -> int | None:
    written = exchange.header(name)
    if written is None:
        return None
    second = condition_rules.parse_date(name, written)
    if isinstance(second, Refusal):
        raise Refused(second)
    return second


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
        return Break(_integer(exchange, "x-ms-lease-break-period", 0, 60))
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
    return _integer(exchange, name, 15, 60)


def _required_id(exchange: Exchange, name: str) -> bytes:
    required_header(exchange, name)
    parsed = lease_id(exchange, name)
    assert parsed is not None
    return parsed


def _integer(exchange: Exchange, name: str, minimum: int, maximum: int) -> int | None:
    written = exchange.header(name)
    if written is None:
        return None
    if not written.isascii() or not written.isdigit() or not minimum <= int(written) <= maximum:
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


def blob_headers(exchange: Exchange, *, standard: bool) -> BlobHeaders:
    """How the blob is to be described. Where a request has a body, its `standard` headers
    describe that, and so the blob, unless there is an `x-ms-blob-` one."""

    def value(name: str, default: str = "") -> str:
        found = exchange.header(f"x-ms-blob-{name}")
        if found is None and standard:
            found = exchange.header(name)
        return default if found is None else found

    return BlobHeaders(
        value("content-type", "application/octet-stream" if standard else ""),
        value("content-encoding"),
        value("content-language"),
        value("content-disposition"),
        value("cache-control"),
        digest(exchange, "x-ms-blob-content-md5", _MD5_BYTES, "InvalidMd5"),
    )


def digest(exchange: Exchange, name: str, size: int, code: str) -> bytes | None:
    written = exchange.header(name)
    if written is None:
        return None
    try:
        decoded = base64.b64decode(written, validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if len(decoded) != size:
        raise Refused(Refusal(code, {"HeaderName": name, "HeaderValue": written}))
    return decoded


def sent_md5(exchange: Exchange) -> bytes | None:
    return digest(exchange, "content-md5", _MD5_BYTES, "InvalidMd5")


def sent_crc64(exchange: Exchange) -> int | None:
    found = digest(exchange, "x-ms-content-crc64", _CRC64_BYTES, "InvalidHeaderValue")
    return None if found is None else int.from_bytes(found, "little")


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


def page_limit(exchange: Exchange) -> int:
    written = exchange.parameter("maxresults")
    if written is None:
        return _PAGE_MAX
    if not written.isascii() or not written.isdigit() or int(written) < 1:
        facts: dict[str, str | int] = {
            "QueryParameterName": "maxresults",
            "QueryParameterValue": written,
            "MinimumAllowed": 1,
            "MaximumAllowed": _PAGE_MAX,
        }
        raise Refused(Refusal("OutOfRangeQueryParameterValue", facts))
    return min(int(written), _PAGE_MAX)


def marker(exchange: Exchange) -> str:
    """The name that a page begins with, from the marker that the page before ended with."""
    written = exchange.parameter("marker")
    if not written:
        return ""
    try:
        return base64.b64decode(written, b"-_", validate=True).decode()
    except ValueError:
        facts: dict[str, str | int] = {
            "QueryParameterName": "marker",
            "QueryParameterValue": written,
        }
        raise Refused(Refusal("OutOfRangeInput", facts)) from None


def included(exchange: Exchange) -> set[str]:
    return set((exchange.parameter("include") or "").lower().split(","))


def endpoint(exchange: Exchange) -> str:
    """The address of the service as the client knows it."""
    signed = exchange.signed
    account = f"/{signed.account}" if signed.path_style else ""
    return f"{signed.scheme}://{exchange.header('host') or ''}{account}/"


def overrides(exchange: Exchange) -> dict[str, str]:
    """Response headers that a token replaces."""
    principal = exchange.principal
    return principal.overrides if isinstance(principal, TokenHolder) else {}


def required_header(exchange: Exchange, name: str) -> str:
    written = exchange.header(name)
    if not written:
        raise Refused(Refusal("MissingRequiredHeader", {"HeaderName": name}))
    return written


def invalid_header(name: str, value: str) -> Refused:
    return Refused(Refusal("InvalidHeaderValue", {"HeaderName": name, "HeaderValue": value}))
