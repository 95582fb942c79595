"""The conditions of requests, from their headers."""

from __future__ import annotations

from typing import Final

from etagere.auth.request import is_text
from etagere.engine.interface import Refused, abort_if, unwrap
from etagere.errors import Refusal
from etagere.model.conditions import NO_CONDITIONS, Conditions
from etagere.protocol.rest.exchange import Exchange
from etagere.rules import conditions as condition_rules
from etagere.rules import tags as tag_rules

_HEADERS_WITHOUT_TAGS: Final = (
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
)
_HEADERS: Final = frozenset({*_HEADERS_WITHOUT_TAGS, tag_rules.CONDITION_HEADER})


def read_conditions(exchange: Exchange) -> Conditions:
    asked = _conditions(exchange)
    if asked is NO_CONDITIONS:
        return asked
    abort_if(condition_rules.check_read_headers(asked, exchange.version))
    if exchange.version < condition_rules.ANY_COMBINATION_SINCE:
        return condition_rules.without_ignored(asked)
    return asked


def write_conditions(exchange: Exchange) -> Conditions:
    asked = _conditions(exchange)
    if asked is not NO_CONDITIONS:
        abort_if(condition_rules.check_write_headers(asked))
    return asked


def _conditions(exchange: Exchange) -> Conditions:
    if _HEADERS.isdisjoint(exchange.request.fields):
        return NO_CONDITIONS
    return conditions_under(exchange, "")


def conditions_under(
    exchange: Exchange, prefix: str, tags_header: str = "x-ms-if-tags"
) -> Conditions:
    """Returns the conditions of the headers that have `prefix` before their names."""
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
    return unwrap(condition_rules.parse_date(name, written))


def refuse_conditions(exchange: Exchange) -> None:
    """Refuses conditions on ETags and dates."""
    for name in _HEADERS_WITHOUT_TAGS:
        if exchange.header(name) is not None:
            raise Refused(Refusal("ConditionHeadersNotSupported", {"HeaderName": name}))


def refuse_tag_conditions(exchange: Exchange) -> None:
    """Refuses conditions on tags."""
    if exchange.header(tag_rules.CONDITION_HEADER) is not None:
        facts: dict[str, str | int] = {"HeaderName": tag_rules.CONDITION_HEADER}
        raise Refused(Refusal("ConditionHeadersNotSupported", facts))
