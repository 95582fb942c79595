"""Queries of entities and tables: decoding of requests, and continuation tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from etagere.auth.principal import TokenHolder
from etagere.auth.request import is_text
from etagere.engine.interface import unwrap
from etagere.model.tables import NO_KEY_LIMITS, Entity, KeyLimits, Keys, Properties, Table
from etagere.protocol.rest.continuation_tokens import format_token, parse_token
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import NUMBER, bad_parameter
from etagere.protocol.rest.responses import Headers
from etagere.rules.entities import TABLE_NAME_LENGTH_MAX
from etagere.rules.filters import Filter, parse_filter, parse_select

PAGE_MAX: Final = 1_000


def check_parameters(exchange: Exchange) -> None:
    """Refuses unsupported query options, and parameters that are not valid text."""
    parameters = exchange.request.parameters
    for name in NOT_IMPLEMENTED & parameters.keys():
        raise bad_parameter("NotImplemented", name, parameters[name])
    for name in _TEXTS & parameters.keys():
        if not is_text(parameters[name]):
            raise bad_parameter("InvalidInput", name, parameters[name])


NOT_IMPLEMENTED: Final = frozenset({"$skip", "$orderby", "$expand", "$inlinecount"})
"""Query options of OData that the service does not support."""

_TEXTS: Final = frozenset(
    {
        "$filter",
        "$select",
        "$top",
        "$format",
        "nextpartitionkey",
        "nextrowkey",
        "nexttablename",
    }
)


def limit(exchange: Exchange) -> int:
    written = exchange.parameter("$top")
    if not written:
        return PAGE_MAX
    if NUMBER.fullmatch(written) is None or int(written) > PAGE_MAX:
        raise bad_parameter("InvalidInput", "$top", written)
    return int(written)


async def filter_of(exchange: Exchange) -> Filter | None:
    written = exchange.parameter("$filter")
    if not written:
        return None
    if len(written) <= _BRIEF_FILTER_CHARACTERS_MAX:
        parsed = parse_filter(written)
    else:
        parsed = await asyncio.to_thread(parse_filter, written)
    return unwrap(parsed)


_BRIEF_FILTER_CHARACTERS_MAX: Final = 4_096
"""A longer one is parsed in a thread: one of the longest takes some 50 ms."""


def select_of(exchange: Exchange) -> tuple[str, ...] | None:
    return unwrap(parse_select(exchange.parameter("$select")))


def key_limits_of(exchange: Exchange) -> KeyLimits:
    """Returns the limits of the caller's token on keys."""
    principal = exchange.principal
    if not isinstance(principal, TokenHolder) or principal.keys is None:
        return NO_KEY_LIMITS
    keys = principal.keys
    return KeyLimits(keys.start_partition, keys.start_row, keys.end_partition, keys.end_row)


# Continuation tokens


def start_of(exchange: Exchange) -> Keys | None:
    partition, row = exchange.parameter("nextpartitionkey"), exchange.parameter("nextrowkey")
    if partition is None:
        if row is not None:
            raise bad_parameter("InvalidInput", "NextRowKey", row)
        return None
    return Keys(_decode("NextPartitionKey", partition), _decode("NextRowKey", row) if row else "")


def continuation(following: Keys | None) -> Headers:
    if following is None:
        return []
    return [
        (b"x-ms-continuation-NextPartitionKey", _encode(following.partition)),
        (b"x-ms-continuation-NextRowKey", _encode(following.row)),
    ]


def table_start_of(exchange: Exchange) -> str:
    written = exchange.parameter("nexttablename")
    start = _decode("NextTableName", written) if written else ""
    # Names that differ only beyond the maximum length have the same position among all names.
    return start[: TABLE_NAME_LENGTH_MAX + 1]


def table_continuation(following: str) -> Headers:
    return [(b"x-ms-continuation-NextTableName", _encode(following))] if following else []


def _encode(text: str) -> bytes:
    return format_token(text).encode()


def _decode(name: str, written: str) -> str:
    text = parse_token(written)
    if text is None:
        raise bad_parameter("InvalidInput", name, written)
    return text


# Tables, which are filtered like entities


def table_matcher(asked: Filter) -> Callable[[Table], bool]:
    def matches(table: Table) -> bool:
        shown = Entity(0, Properties(("TableName",), "s", (table.name,)))
        return asked.matches(_NO_KEYS, shown)

    return matches


_NO_KEYS: Final = Keys("", "")
