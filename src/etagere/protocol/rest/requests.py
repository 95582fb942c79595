"""Headers and parameters that requests to all services have in common."""

from __future__ import annotations

import re
from typing import Final

from etagere.auth.principal import TokenHolder
from etagere.auth.request import is_text
from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.protocol.rest.exchange import Exchange
from etagere.rules import names

PAGE_MAX: Final = 5_000
# Python refuses to parse numbers with thousands of digits; no valid one has more than these.
NUMBER: Final = re.compile(r"[0-9]{1,18}")


# Headers


def required_header(exchange: Exchange, name: str) -> str:
    written = exchange.header(name)
    if not written:
        raise Refused(Refusal("MissingRequiredHeader", {"HeaderName": name}))
    return written


def invalid_header(name: str, value: str) -> Refused:
    return Refused(Refusal("InvalidHeaderValue", {"HeaderName": name, "HeaderValue": value}))


def integer_header(exchange: Exchange, name: str, minimum: int, maximum: int) -> int | None:
    written = exchange.header(name)
    if written is None:
        return None
    if NUMBER.fullmatch(written) is None or not minimum <= int(written) <= maximum:
        raise invalid_header(name, written)
    return int(written)


def header_overrides(exchange: Exchange) -> dict[str, str]:
    """Returns the response headers that a token overrides, by name in lower case."""
    principal = exchange.principal
    return principal.overrides if isinstance(principal, TokenHolder) else {}


# Parameters


def bad_parameter(
    code: str, name: str, value: str, more: dict[str, str | int] | None = None
) -> Refused:
    facts: dict[str, str | int] = {"QueryParameterName": name, "QueryParameterValue": value}
    return Refused(Refusal(code, facts | (more or {})))


def check_timeout(exchange: Exchange) -> None:
    """Refuses a `timeout` that is not a number. Otherwise only operations that wait for others
    observe it."""
    written = exchange.parameter("timeout")
    if written and NUMBER.fullmatch(written) is None:
        raise bad_parameter("InvalidQueryParameterValue", "timeout", written)


def page_limit(exchange: Exchange) -> int:
    written = exchange.parameter("maxresults")
    if written is None:
        return PAGE_MAX
    if NUMBER.fullmatch(written) is None or int(written) < 1:
        limits: dict[str, str | int] = {"MinimumAllowed": 1, "MaximumAllowed": PAGE_MAX}
        raise bad_parameter("OutOfRangeQueryParameterValue", "maxresults", written, limits)
    return min(int(written), PAGE_MAX)


def text_parameter(exchange: Exchange, name: str) -> str:
    """Returns a parameter that is compared with names, or "" if it is absent."""
    written = exchange.parameter(name) or ""
    if not is_text(written) or len(written) > names.BLOB_NAME_LENGTH_MAX:
        raise bad_parameter("InvalidQueryParameterValue", name, written)
    return written


def included(exchange: Exchange, known: frozenset[str]) -> set[str]:
    """Returns the details that a listing is to include; `known` are those that it accepts."""
    written = exchange.parameter("include") or ""
    include = {detail.strip() for detail in written.lower().split(",")} - {""}
    if not include <= known:
        raise bad_parameter("InvalidQueryParameterValue", "include", written)
    return include


def endpoint(exchange: Exchange) -> str:
    """Returns the URL of the service as the client knows it."""
    request = exchange.request
    account = f"/{request.account}" if request.path_style else ""
    host = exchange.header("host") or ""
    return f"{request.scheme}://{host if is_text(host) else ''}{account}/"
