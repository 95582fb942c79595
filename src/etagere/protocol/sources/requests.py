"""Decoding of what requests say about copies, whatever their service."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from etagere.auth.request import address
from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.conditions import NO_CONDITIONS, Conditions
from etagere.protocol.rest.conditions import conditions_under
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.refusals import SOURCE_CODE, UnreadSource
from etagere.protocol.rest.requests import bad_parameter, invalid_header, required_header
from etagere.protocol.sources import addresses
from etagere.rules import conditions as condition_rules
from etagere.rules import leases as lease_rules

_NOT_YET_OF_SOURCES: Final = (
    "x-ms-copy-source-authorization",
    "x-ms-source-encryption-key",
)


def copy_source(exchange: Exchange) -> str:
    """Returns the URL of a source. Headers with credentials of unsupported kinds are refused,
    because the source must not be read without them."""
    for name in _NOT_YET_OF_SOURCES:
        if exchange.header(name) is not None:
            raise Refused(Refusal("UnsupportedHeader", {"HeaderName": name}))
    return required_header(exchange, "x-ms-copy-source")


def source_conditions(exchange: Exchange) -> Conditions:
    prefix = condition_rules.SOURCE_PREFIX
    if not any(name.startswith(f"{prefix}if-") for name in exchange.request.fields):
        return NO_CONDITIONS
    asked = conditions_under(exchange, prefix, f"{prefix}if-tags")
    abort_if(condition_rules.check_write_headers(asked))
    return asked


def forwarded_conditions(exchange: Exchange) -> dict[str, str]:
    """Returns the conditions on a source, as headers for another server."""
    prefix = condition_rules.SOURCE_PREFIX
    forwarded = {
        header.value: exchange.header(f"{prefix}{header.value.lower()}")
        for header in condition_rules.ConditionHeader
    }
    forwarded["x-ms-if-tags"] = exchange.header(f"{prefix}if-tags")
    present = {name: value for name, value in forwarded.items() if value is not None}
    for name, value in present.items():
        if not value.isascii() or not value.isprintable():
            raise invalid_header(f"{prefix}{name.lower()}", value)
    return present


def aborted_copy(exchange: Exchange) -> bytes:
    """Returns the id of the copy to abort."""
    action = required_header(exchange, "x-ms-copy-action")
    if action.lower() != "abort":
        raise invalid_header("x-ms-copy-action", action)
    written = exchange.parameter("copyid")
    if not written:
        raise Refused(Refusal("MissingRequiredQueryParameter", {"QueryParameterName": "copyid"}))
    parsed = lease_rules.parse_lease_id(written)
    if parsed is None:
        raise bad_parameter("InvalidQueryParameterValue", "copyid", written)
    return parsed


def direct_refusal(exchange: Exchange, refusal: Refusal, codes: Collection[str]) -> Refusal | None:
    """Returns the refusal for a missing source in the same account, which is like that of a direct
    request; None for any other. `codes` are the errors of the service for missing objects."""
    if not isinstance(refusal, UnreadSource) or refusal.status != 404:
        return None
    named = addresses.parse(copy_source(exchange))
    code = str(refusal.facts.get(SOURCE_CODE))
    if named is None or code not in codes:
        return None
    if address(named.authority, named.path).account != exchange.request.account:
        return None
    return Refusal(code)
