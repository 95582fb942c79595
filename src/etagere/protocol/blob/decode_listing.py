"""Decoding of requests for listings of blobs."""

from __future__ import annotations

import base64
from typing import Final

from etagere.model.blobs import (
    NO_SNAPSHOT,
    ListBlobs,
)
from etagere.protocol.blob import decode
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import (
    NUMBER,
    bad_parameter,
    included,
    page_limit,
    text_parameter,
)
from etagere.rules import names


def marker(exchange: Exchange) -> tuple[str, int]:
    """Returns the first name of a page, and the snapshot of it, from the marker."""
    written = exchange.parameter("marker")
    if not written:
        return "", 0
    try:
        name, mark, snapshot = base64.b64decode(written, b"-_", validate=True).partition(b"\xff")
        start, moment = name.decode(), snapshot.decode("ascii")
        if len(start) > names.BLOB_NAME_LENGTH_MAX:
            raise ValueError("no name is so long")
        if not mark:
            return start, NO_SNAPSHOT
        if NUMBER.fullmatch(moment) is None:
            raise ValueError("no decode.snapshot is called so")
        return start, int(moment)
    except ValueError:
        raise bad_parameter("OutOfRangeInput", "marker", written) from None


CONTAINER_DETAILS: Final = frozenset({"metadata", "deleted", "system"})
BLOB_DETAILS: Final = frozenset(
    {
        "copy",
        "deleted",
        "deletedwithversions",
        "immutabilitypolicy",
        "legalhold",
        "metadata",
        "permissions",
        "snapshots",
        "tags",
        "uncommittedblobs",
        "versions",
    }
)


def list_blobs(exchange: Exchange) -> tuple[ListBlobs, set[str]]:
    include = included(exchange, BLOB_DETAILS)
    start, start_snapshot = marker(exchange)
    command = ListBlobs(
        decode.container_name(exchange),
        page_limit(exchange),
        text_parameter(exchange, "prefix"),
        text_parameter(exchange, "delimiter"),
        start or text_parameter(exchange, "startfrom"),
        start_snapshot,
        text_parameter(exchange, "endbefore"),
        snapshots="snapshots" in include,
        uncommitted="uncommittedblobs" in include,
    )
    if command.delimiter and command.snapshots:
        # With a prefix, the snapshot would be ambiguous.
        written = exchange.parameter("include") or ""
        raise bad_parameter("InvalidQueryParameterValue", "include", written)
    return command, include
