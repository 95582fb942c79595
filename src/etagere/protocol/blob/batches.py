"""Blob batches: requests inside of a request, each of which is carried out by itself.

A batch is taken or refused as a whole for its form: that all of its parts can be read, are for the
same account (and container, if it is sent to one) and ask for the same. What cannot be taken apart,
or has a part that cannot belong to it, is answered like the service does: by a batch of one part
without a name, which is the refusal. Whatever else is wrong with a part is told in the answer to
it, and the others are carried out nevertheless.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from etagere.engine.interface import Refused
from etagere.errors import Refusal, http_status
from etagere.protocol.blob.routes import find_route
from etagere.protocol.codecs.errors import BY_SERVICE
from etagere.protocol.codecs.multipart import (
    PartRequest,
    PartResponse,
    format_responses,
    parse_requests,
)
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import Response
from etagere.protocol.requests import required_header
from etagere.protocol.service import occasion

BYTES_MAX: Final = 4 << 20
PARTS_MAX: Final = 256
ANSWERED_INSIDE: Final = frozenset({"InvalidHeaderValue", "InvalidInput"})
"""The codes of refusals of a whole batch that are its only part."""
_OPERATIONS: Final = frozenset({"delete_blob", "set_blob_tier"})


async def read_requests(exchange: Exchange) -> list[PartRequest]:
    content_type = required_header(exchange, "content-type")
    length = exchange.http.body.length
    if length is not None and length > BYTES_MAX:
        raise Refused(Refusal("RequestBodyTooLarge", {"MaxLimit": BYTES_MAX}))
    body = await exchange.http.body.read(BYTES_MAX)
    requests = parse_requests(content_type, body, PARTS_MAX)
    if isinstance(requests, Refusal):
        raise Refused(requests)
    return requests


def parts_of(exchange: Exchange, requests: Sequence[PartRequest], container: str) -> list[Exchange]:
    """Each as a request of its own, to this container if one is given."""
    parts = [exchange.part(request.method, request.target, request.headers) for request in requests]
    if any(part.signed.account != exchange.signed.account for part in parts):
        raise _unusable("All requests of a batch must be for its account.")
    if container and any(part.signed.resource[0] != container for part in parts):
        raise _unusable("All requests of a batch must be for its container.")
    operations = {_operation(part) for part in parts}
    if not operations <= _OPERATIONS:
        raise _unusable("A batch can delete blobs or set tiers.")
    if len(operations) > 1:
        raise Refused(Refusal("AllBatchSubRequestsShouldBeSameApi"))
    return parts


def _operation(part: Exchange) -> str | None:
    container, blob = part.signed.resource
    restype, comp = part.parameter("restype") or "", part.parameter("comp") or ""
    return find_route(part.signed.method, container, blob, restype, comp)[1]


def _unusable(reason: str) -> Refused:
    return Refused(Refusal("InvalidInput", {"Reason": reason}))


def answer(requests: Sequence[PartRequest], responses: Sequence[Response]) -> Response:
    """In the order of the requests, each under the name that its client gave it."""
    parts = [
        _part_of(response, request.content_id)
        for request, response in zip(requests, responses, strict=True)
    ]
    content_type, body = format_responses(parts, str(uuid.uuid4()))
    return Response(202, [(b"Content-Type", content_type.encode())], body)


def answer_refused(exchange: Exchange, refusal: Refusal) -> Response:
    """By one part that answers none of the requests."""
    content_type, encode = BY_SERVICE[exchange.signed.service]
    headers = [
        *exchange.common_headers(),
        (b"x-ms-error-code", refusal.code.encode()),
        (b"Content-Type", content_type.encode()),
    ]
    status = http_status(refusal.code, exchange.signed.service)
    body = encode(refusal, occasion(exchange))
    refused = _part_of(Response(status, headers, body, reason=refusal.message), "")
    content_type, batch = format_responses([refused], str(uuid.uuid4()))
    return Response(202, [(b"Content-Type", content_type.encode())], batch)


def _part_of(response: Response, content_id: str) -> PartResponse:
    assert isinstance(response.body, bytes)
    headers = list(response.headers)
    if response.body:
        headers.append((b"Content-Length", b"%d" % len(response.body)))
    return PartResponse(response.status, headers, response.body, content_id, response.reason)
