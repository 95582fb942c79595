"""What requests say of the sources that they copy or read from."""

from __future__ import annotations

from typing import Final

from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.conditions import NO_CONDITIONS, Conditions
from etagere.protocol.rest.conditions import conditions_under
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import bad_parameter, invalid_header, required_header
from etagere.rules import conditions as condition_rules
from etagere.rules import leases as lease_rules

_NOT_YET_OF_SOURCES: Final = (
    "x-ms-copy-source-authorization",
    "x-ms-source-encryption-key",
)


def copy_source(exchange: Exchange) -> str:
    """The address of a source. What gives the right to read it in ways that are not there yet is
    refused: the source must not be read without."""
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
    """The conditions of a source on another server, as that server is asked."""
    prefix = condition_rules.SOURCE_PREFIX
    forwarded = {
        header.value: exchange.header(f"{prefix}{header.value.lower()}")
        for header in condition_rules.ConditionHeader
    }
    forwarded["x-ms-if-tags"] = exchange.header(f"{prefix}if-tags")
    told = {name: value for name, value in forwarded.items() if value is not None}
    for name, value in told.items():
        if not value.isascii() or not value.isprintable():
            raise invalid_header(f"{prefix}{name.lower()}", value)
    return told


def copies_properties(exchange: Exchange) -> bool:
    """Whether a blob is described as its source is, where the request says nothing."""
    name = "x-ms-copy-source-blob-properties"
    written = exchange.header(name)
    if written is None or written.lower() == "true":
        return True
    if written.lower() != "false":
        raise invalid_header(name, written)
    return False


def copies_tags(exchange: Exchange) -> bool:
    """Whether a blob gets the tags of its source, and not those of the request."""
    name = "x-ms-copy-source-tag-option"
    written = exchange.header(name)
    if written is None or written.lower() == "replace":
        return False
    if written.lower() != "copy":
        raise invalid_header(name, written)
    if exchange.header("x-ms-tags"):
        raise Refused(Refusal("BothUserTagsAndSourceTagsCopyPresentException"))
    return True


def seals(exchange: Exchange) -> bool | None:
    """Whether a copy is to be sealed; None: as its source is."""
    name = "x-ms-seal-blob"
    written = exchange.header(name)
    if written is None:
        return None
    if written.lower() not in ("true", "false"):
        raise invalid_header(name, written)
    return written.lower() == "true"


def aborted_copy(exchange: Exchange) -> bytes:
    """The copy that is to be aborted."""
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
