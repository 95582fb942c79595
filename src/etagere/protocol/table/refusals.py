"""How the table service answers requests that it refuses.

Requests for tables and entities are OData, and so are their errors: JSON, without x-ms-error-code.
Errors of all others (properties and statistics of the service, access policies) are XML, with that
header. Authentication errors have it in either form, and are JSON only for clients that accept it.
"""

from __future__ import annotations

from typing import Final

from etagere.errors import Refusal
from etagere.protocol.answers import XML, Headers
from etagere.protocol.codecs.errors import (
    AUTHENTICATION_CODES,
    ODATA_TYPE,
    Encoder,
    encode_odata,
    encode_table_xml,
)
from etagere.protocol.exchange import Exchange
from etagere.protocol.table.changes import COMMON

_JSON: Final = (b"Content-Type", ODATA_TYPE.encode())


def error_form(exchange: Exchange, refusal: Refusal) -> tuple[Headers, Encoder]:
    """The headers of an error answer besides those of every answer, and the encoder of its body."""
    is_authentication = refusal.code in AUTHENTICATION_CODES
    code = (b"x-ms-error-code", refusal.code.encode())
    if not _is_odata(exchange) or (is_authentication and not _asks_for_json(exchange)):
        return [code, XML], encode_table_xml
    # The answer to HEAD has no body that could name it.
    has_code = is_authentication or exchange.signed.method == "HEAD"
    return [*odata_error_headers(), *([code] if has_code else [])], encode_odata


def odata_error_headers() -> Headers:
    return [*COMMON, _JSON]


def _is_odata(exchange: Exchange) -> bool:
    parameters = exchange.signed.parameters
    return "comp" not in parameters and "restype" not in parameters


def _asks_for_json(exchange: Exchange) -> bool:
    return "json" in (exchange.header("accept") or "").lower()
