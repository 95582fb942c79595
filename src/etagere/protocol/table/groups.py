"""Entity group transactions: requests inside of a request, carried out together or not at all."""

from __future__ import annotations

import uuid
from functools import lru_cache
from typing import Final, NamedTuple

from etagere.auth.request import address, percent_decoded
from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.protocol.codecs.multipart import (
    OPERATIONS_MAX,
    Batch,
    PartRequest,
    PartResponse,
    format_changeset,
    format_query,
    parse_batch,
)
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import Response
from etagere.protocol.requests import required_header
from etagere.protocol.table.addresses import Address, parse_address
from etagere.protocol.table.changes import Asked, decode_change, kind_of_change, method_of
from etagere.rules.entities import check_in_group

BYTES_MAX: Final = 4 << 20


class Part(NamedTuple):
    """One change of a group, and the table that its address names."""

    table: str
    asked: Asked


async def read_batch(exchange: Exchange) -> Batch:
    content_type = required_header(exchange, "content-type")
    length = exchange.http.body.length
    if length is not None and length > BYTES_MAX:
        raise Refused(Refusal("RequestBodyTooLarge", {"MaxLimit": BYTES_MAX}))
    batch = parse_batch(content_type, await exchange.http.body.read(BYTES_MAX))
    if isinstance(batch, Refusal):
        raise Refused(batch)
    return batch


def address_of(exchange: Exchange, request: PartRequest) -> tuple[Address, str]:
    """What the address of a part names, and its query. It may be whole, or begin at any level."""
    host, account, target = exchange.header("host") or "", exchange.signed.account, request.target
    find = _known_address if len(target) <= _KNOWN_LENGTH_MAX else _address_of
    found, query = find(host, account, target)
    if found is None:
        raise Refused(Refusal("InvalidInput", {"Reason": "A part has no address."}))
    return found, query


_KNOWN_LENGTH_MAX: Final = 1024


def _address_of(host: str, account: str, target: str) -> tuple[Address | None, str]:
    scheme, _, rest = target.partition("://")
    # A filter may hold an address too.
    path = f"/{rest.partition('/')[2]}" if rest and scheme.isalpha() else target
    path, _, query = path.partition("?")
    below = path.lstrip("/")
    if address(host, path).path_style or below.startswith(f"{account}/"):
        first, _, others = below.partition("/")
        if first in (account, f"{account}-secondary"):
            below = others
    return parse_address(percent_decoded(below)), query


# The inserts of a group have one address, that of their table.
_known_address = lru_cache(maxsize=256)(_address_of)


def decode_part(exchange: Exchange, request: PartRequest) -> Part:
    target, _ = address_of(exchange, request)
    method = method_of(request.method, request.headers)
    kind = kind_of_change(method, target, request.headers)
    if kind is None:
        raise Refused(Refusal("InvalidInput", {"Reason": "A part changes no entity."}))
    asked = decode_change(kind, target, request.headers, request.body, "")
    return Part(target.table, asked)


def check_length(requests: list[PartRequest]) -> Refusal | None:
    """What reads a batch gives none for too many."""
    if requests:
        return None
    reason = f"A change set holds at most {OPERATIONS_MAX} operations."
    return Refusal("InvalidInput", {"Reason": reason})


class Group:
    """The parts of a group so far: of one table, of one partition, and no entity twice."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._rows: set[str] = set()

    def add(self, part: Part) -> None:
        first, keys = self.parts[0] if self.parts else part, part.asked.change.keys
        if part.table.lower() != first.table.lower():
            facts: dict[str, str | int] = {"Reason": "All parts must be about one table."}
            raise Refused(Refusal("InvalidInput", facts))
        abort_if(check_in_group(keys, first.asked.change.keys, self._rows))
        self._rows.add(keys.row)
        self.parts.append(part)


# Answers


def _part_of(response: Response) -> PartResponse:
    assert isinstance(response.body, bytes)
    return PartResponse(response.status, response.headers, response.body)


def changes_answer(responses: list[Response]) -> Response:
    """All of them, or the one of the change that was refused."""
    parts = [_part_of(response) for response in responses]
    return _accepted(format_changeset(parts, str(uuid.uuid4()), str(uuid.uuid4())))


def query_answer(response: Response) -> Response:
    return _accepted(format_query(_part_of(response), str(uuid.uuid4())))


def _accepted(formatted: tuple[str, bytes]) -> Response:
    content_type, body = formatted
    return Response(202, [(b"Content-Type", content_type.encode())], body)
