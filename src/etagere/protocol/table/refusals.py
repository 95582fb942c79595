"""The error responses of the table service.

Requests for tables and entities are OData, and so are their errors: JSON, without x-ms-error-code.
Errors of all others (properties and statistics of the service, access policies) are XML, with that
header. Authentication errors have it in either form, and are JSON only for clients that accept it.
"""

from __future__ import annotations

from typing import Final

from etagere.errors import Refusal
from etagere.protocol.codecs.errors import (
    AUTHENTICATION_CODES,
    ODATA_TYPE,
    encode_odata,
    encode_table_xml,
)
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.refusals import ErrorForm
from etagere.protocol.rest.responses import XML
from etagere.protocol.table.changes import COMMON

ODATA_PART: Final = ErrorForm([*COMMON, (b"Content-Type", ODATA_TYPE.encode())], encode_odata)
"""The form of errors about tables and entities, and of all errors in a batch."""


def error_form(exchange: Exchange, refusal: Refusal) -> ErrorForm:
    """Returns the form of an error response of the table service."""
    is_authentication = refusal.code in AUTHENTICATION_CODES
    code = (b"x-ms-error-code", refusal.code.encode())
    if not _is_odata(exchange) or (is_authentication and not _asks_for_json(exchange)):
        return ErrorForm([code, XML], encode_table_xml)
    # A response to HEAD has no body with the code.
    has_code = is_authentication or exchange.request.method == "HEAD"
    return ErrorForm([*ODATA_PART.headers, code], encode_odata) if has_code else ODATA_PART


def _is_odata(exchange: Exchange) -> bool:
    parameters = exchange.request.parameters
    return "comp" not in parameters and "restype" not in parameters


def _asks_for_json(exchange: Exchange) -> bool:
    return "json" in (exchange.header("accept") or "").lower()
