"""Decoding of what requests say about copies, whatever their service."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from etagere.auth.challenges import is_bearer
from etagere.auth.permissions import FILE_REQUEST_INTENT
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

_AUTHORIZATION: Final = "x-ms-copy-source-authorization"
_ENCRYPTION_KEY: Final = "x-ms-source-encryption-key"


def copy_source(exchange: Exchange) -> str:
    """Returns the URL of a source. Keys of customers are refused, because the source must not be
    read without them."""
    if exchange.header(_ENCRYPTION_KEY) is not None:
        raise Refused(Refusal("UnsupportedHeader", {"HeaderName": _ENCRYPTION_KEY}))
    return required_header(exchange, "x-ms-copy-source")


def source_headers(exchange: Exchange, *, may_authorize: bool) -> dict[str, str]:
    """Returns the headers that authorize the read of a source: a bearer token, if the operation
    accepts one, and the intent of users of the file service. The token is in no refusal."""
    written = exchange.header(_AUTHORIZATION)
    if written is None:
        return {}
    if not may_authorize:
        raise Refused(Refusal("UnsupportedHeader", {"HeaderName": _AUTHORIZATION}))
    if not is_bearer(written) or not written.isascii() or not written.isprintable():
        raise Refused(Refusal("InvalidHeaderValue", {"HeaderName": _AUTHORIZATION}))
    headers = {"authorization": written}
    intent = exchange.header(FILE_REQUEST_INTENT)
    if intent is not None and intent.isascii() and intent.isprintable():
        headers[FILE_REQUEST_INTENT] = intent
    return headers


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
