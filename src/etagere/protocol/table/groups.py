"""Entity group transactions: requests nested in a request that are executed atomically."""

from __future__ import annotations

import uuid
from functools import lru_cache
from typing import Final, NamedTuple

from etagere.auth.request import address, percent_decoded
from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.tables import ChangeKind
from etagere.protocol.codecs.entity_answers import Origin
from etagere.protocol.codecs.multipart import (
    OPERATIONS_MAX,
    Batch,
    PartRequest,
    PartResponse,
    format_changeset,
    format_part,
    format_query,
    parse_batch,
)
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import required_header
from etagere.protocol.rest.responses import Headers
from etagere.protocol.table.addresses import Address, parse_address
from etagere.protocol.table.changes import (
    COMMON,
    NO_CONTENT,
    ChangeHead,
    RequestedChange,
    address_of_entity,
    answer,
    check_upsert,
    decode_body,
    decode_head,
    method_of,
    preference_headers,
)
from etagere.protocol.table.dependencies import ChangeOf
from etagere.rules.entities import check_in_group

BYTES_MAX: Final = 4 << 20


class Part(NamedTuple):
    """A change of a group, and the table in its address."""

    table: str
    asked: RequestedChange


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
    """Returns the address of a part, and its query. The URL may be absolute, or begin at any
    level."""
    host, account, target = exchange.header("host") or "", exchange.request.account, request.target
    find = _known_address if len(target) <= _KNOWN_LENGTH_MAX else _address_of
    found, query = find(host, account, target)
    if found is None:
        raise Refused(Refusal("InvalidInput", {"Reason": "A part has no address."}))
    return found, query


_KNOWN_LENGTH_MAX: Final = 1024


def _address_of(host: str, account: str, target: str) -> tuple[Address | None, str]:
    scheme, _, rest = target.partition("://")
    # A filter may contain a URL too.
    path = f"/{rest.partition('/')[2]}" if rest and scheme.isalpha() else target
    path, _, query = path.partition("?")
    below = path.lstrip("/")
    if address(host, path).path_style or below.startswith(f"{account}/"):
        first, _, others = below.partition("/")
        if first in (account, f"{account}-secondary"):
            below = others
    return parse_address(percent_decoded(below)), query


# The inserts of a group have the same address, that of their table.
_known_address = lru_cache(maxsize=256)(_address_of)


def _decode_head(exchange: Exchange, request: PartRequest, change_of: ChangeOf) -> ChangeHead:
    target, _ = address_of(exchange, request)
    method = method_of(request.method, request.headers)
    kind = change_of(method, target, request.headers)
    if kind is None:
        raise Refused(Refusal("InvalidInput", {"Reason": "A part changes no entity."}))
    abort_if(check_upsert(kind, exchange.version))
    return decode_head(kind, target, request.headers, "")


def too_long() -> Refusal:
    message = (
        f"The batch request operation exceeds the maximum {OPERATIONS_MAX} changes per change set."
    )
    return Refusal("InvalidInput", {"MaxLimit": OPERATIONS_MAX}, message_override=message)


def reported_index(refusal: Refusal, index: int, count: int) -> int | None:
    """Returns the index in the message of a refusal, of the refused change among `count`. The
    service omits it if the refusal depends on the entity itself and there is only one."""
    return None if count == 1 and refusal.code in _WITHOUT_INDEX else index


_WITHOUT_INDEX: Final = frozenset({"ResourceNotFound", "UpdateConditionNotSatisfied"})


def preference_of_refused(refusal: Refusal, request: PartRequest) -> Headers:
    """Returns the preference header of the response to a refused insert: none if there is no such
    table."""
    if request.method != "POST" or refusal.code in _BEFORE_PREFERENCE:
        return []
    return preference_headers(request.headers.get("prefer", "").strip().lower())


_BEFORE_PREFERENCE: Final = frozenset({"TableNotFound", "InvalidResourceName", "OutOfRangeInput"})


class Group:
    """The parts of a group: of one table and one partition, without duplicate entities."""

    def __init__(self, exchange: Exchange, change_of: ChangeOf) -> None:
        self.parts: list[Part] = []
        self._exchange = exchange
        self._change_of = change_of
        self._rows: set[str] = set()
        self._last: tuple[PartRequest, ChangeHead] | None = None

    def decode(self, request: PartRequest) -> Part:
        """Decodes the change of a part. The head is not decoded again if it is that of the previous
        part: equal headers are mostly the same object."""
        last = self._last
        if (
            last is None
            or request.headers is not last[0].headers
            or request.target != last[0].target
            or request.method != last[0].method
        ):
            self._last = last = request, _decode_head(self._exchange, request, self._change_of)
        head = last[1]
        return Part(head.address.table, decode_body(head, request.body))

    def add(self, part: Part) -> None:
        table, asked = part
        first, keys = self.parts[0] if self.parts else part, asked.change.keys
        if table is not first.table and table.lower() != first.table.lower():
            facts: dict[str, str | int] = {"Reason": "All parts must be about one table."}
            raise Refused(Refusal("InvalidInput", facts))
        abort_if(check_in_group(keys, first.asked.change.keys, self._rows))
        self._rows.add(keys.row)
        self.parts.append(part)


# Responses


_VERSION_1: Final = (b"DataServiceVersion", b"1.0;")
_VERSION_3: Final = (b"DataServiceVersion", b"3.0;")
"""Only parts of a batch have this: the first form those that do not need OData 3."""


def _part_of(response: Response, version: tuple[bytes, bytes] = _VERSION_3) -> PartResponse:
    assert isinstance(response.body, bytes)
    return PartResponse(response.status, [*response.headers, version], response.body)


class Answers:
    """The responses to the changes of a group."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._formatted: list[bytes] = []
        # Responses to inserts differ only in the address, which is between these parts.
        self._similar: tuple[str, int] | None = None
        self._around: list[bytes] = []

    def add(self, part: Part, stamp: int) -> None:
        table, asked = part
        if asked.change.change is not ChangeKind.INSERT or asked.prefer != NO_CONTENT:
            self._formatted.append(self._format(part, stamp))
            return
        address = address_of_entity(self._origin, table, asked.change.keys)
        if self._similar != (table, stamp):
            self._similar = table, stamp
            self._around = self._format(part, stamp).split(address)
        self._formatted.append(address.join(self._around))

    def _format(self, part: Part, stamp: int) -> bytes:
        response = answer(part.asked, stamp, part.table, self._origin)
        is_insert = part.asked.change.change is ChangeKind.INSERT
        return format_part(_part_of(response, _VERSION_3 if is_insert else _VERSION_1))

    def response(self) -> Response:
        return _changes_answer(self._formatted)


def refused_answer(refused: Response) -> Response:
    """Returns the response to a refused group: that of the refused change."""
    return _changes_answer([format_part(_part_of(refused))])


def _changes_answer(formatted: list[bytes]) -> Response:
    return _accepted(format_changeset(formatted, str(uuid.uuid4()), str(uuid.uuid4())))


def query_answer(response: Response) -> Response:
    return _accepted(format_query(_part_of(response), str(uuid.uuid4())))


def _accepted(formatted: tuple[str, bytes]) -> Response:
    content_type, body = formatted
    return Response(202, [*COMMON, (b"Content-Type", content_type.encode())], body)
