"""Blob batches: independent requests nested in a request.

A batch is refused as a whole if a part cannot be parsed, is for another account (or another
container than that of the batch), or for another operation than the others. As by the service, the
response is then a batch of one part without a Content-ID, which is the error. Any other error of a
part is in the response to that part, and the other parts are executed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Final

from etagere.engine.interface import Refused, unwrap
from etagere.errors import Refusal
from etagere.protocol.codecs.multipart import (
    PartRequest,
    PartResponse,
    format_responses,
    parse_requests,
)
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.refusals import error_form_of, error_response
from etagere.protocol.rest.requests import required_header

BYTES_MAX: Final = 4 << 20
PARTS_MAX: Final = 256
ANSWERED_INSIDE: Final = frozenset({"InvalidHeaderValue", "InvalidInput"})
"""The codes of refusals of a batch that are returned as its only part."""
_OPERATIONS: Final = frozenset({"delete_blob", "set_blob_tier"})


async def read_requests(exchange: Exchange) -> list[PartRequest]:
    content_type = required_header(exchange, "content-type")
    length = exchange.http.body.length
    if length is not None and length > BYTES_MAX:
        raise Refused(Refusal("RequestBodyTooLarge", {"MaxLimit": BYTES_MAX}))
    body = await exchange.http.body.read(BYTES_MAX)
    return unwrap(parse_requests(content_type, body, PARTS_MAX))


def parts_of(
    exchange: Exchange,
    requests: Sequence[PartRequest],
    container: str,
    operation_of: Callable[[Exchange], str | None],
) -> list[Exchange]:
    """Returns each part as a nested request, to this container if one is given."""
    parts = [
        exchange.nested(request.method, request.target, request.headers) for request in requests
    ]
    if any(part.request.account != exchange.request.account for part in parts):
        raise _unusable("All requests of a batch must be for its account.")
    if container and any(part.request.resource[0] != container for part in parts):
        raise _unusable("All requests of a batch must be for its container.")
    operations = {operation_of(part) for part in parts}
    if not operations <= _OPERATIONS:
        raise _unusable("A batch can delete blobs or set tiers.")
    if len(operations) > 1:
        raise Refused(Refusal("AllBatchSubRequestsShouldBeSameApi"))
    return parts


def _unusable(reason: str) -> Refused:
    return Refused(Refusal("InvalidInput", {"Reason": reason}))


def answer(requests: Sequence[PartRequest], responses: Sequence[Response]) -> Response:
    """Returns the responses in the order of the requests, with their Content-IDs."""
    parts = [
        _part_of(response, request.content_id)
        for request, response in zip(requests, responses, strict=True)
    ]
    content_type, body = format_responses(parts, str(uuid.uuid4()))
    return Response(202, [(b"Content-Type", content_type.encode())], body)


def answer_refused(exchange: Exchange, refusal: Refusal) -> Response:
    """Returns the response to a refused batch: one part that belongs to none of the requests."""
    form = error_form_of(exchange.request.service, refusal)
    response = error_response(exchange, refusal, form)
    response.headers = [*exchange.common_headers(), *response.headers]
    content_type, batch = format_responses([_part_of(response, "")], str(uuid.uuid4()))
    return Response(202, [(b"Content-Type", content_type.encode())], batch)


def _part_of(response: Response, content_id: str) -> PartResponse:
    assert isinstance(response.body, bytes)
    headers = list(response.headers)
    if response.body:
        headers.append((b"Content-Length", b"%d" % len(response.body)))
    return PartResponse(response.status, headers, response.body, content_id, response.reason)
