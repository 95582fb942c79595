"""Decoding of requests about tags."""

from __future__ import annotations

from typing import Final

from etagere.engine.interface import Refused, abort_if, unwrap
from etagere.errors import Refusal
from etagere.model.blobs import (
    GetBlob,
    Tags,
)
from etagere.model.conditions import Conditions
from etagere.operations.blob.tags import BlobPlace
from etagere.protocol.blob import decode
from etagere.protocol.codecs.tags import parse_marker
from etagere.protocol.rest import leases
from etagere.protocol.rest.conditions import conditions_under, refuse_conditions
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import bad_parameter
from etagere.rules import conditions as condition_rules
from etagere.rules import tags as tag_rules
from etagere.rules.tag_expressions import Search


def tags(exchange: Exchange) -> Tags:
    """Returns the tags of a new blob."""
    written = exchange.header("x-ms-tags")
    if not written:
        return ()
    return unwrap(tag_rules.parse_header(written))


def tag_conditions(exchange: Exchange) -> Conditions:
    """Returns the conditions of a request for tags on its blob, which have headers of their own:
    the usual ones would refer to the tags, which have neither an ETag nor a date."""
    refuse_conditions(exchange)
    asked = conditions_under(exchange, "x-ms-blob-")
    abort_if(condition_rules.check_write_headers(asked))
    return asked


def get_blob_tags(exchange: Exchange) -> GetBlob:
    return GetBlob(
        decode.blob_name(exchange),
        tag_conditions(exchange),
        leases.lease_id(exchange),
        decode.snapshot(exchange),
    )


FOUND_DETAILS: Final = frozenset({"none", "deleted", "versions"})


def tag_search(exchange: Exchange) -> Search:
    written = exchange.parameter("where")
    if not written:
        raise Refused(Refusal("MissingRequiredQueryParameter", {"QueryParameterName": "where"}))
    return unwrap(tag_rules.parse_where(written))


def found_marker(exchange: Exchange) -> BlobPlace | None:
    """Returns where a page of search results begins, from the marker."""
    written = exchange.parameter("marker")
    if not written:
        return None
    place = parse_marker(written)
    if place is None:
        raise bad_parameter("OutOfRangeInput", "marker", written)
    return place
