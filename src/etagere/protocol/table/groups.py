"""Entity group transactions: requests inside of a request, carried out together or not at all."""

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
    Asked,
    ChangeHead,
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
    host, account, target = exchange.header("host") or "", exchange.request.account, request.target
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


def index_told(refusal: Refusal, index: int, count: int) -> int | None:
    """The index that a refusal's message begins with, of the change that was refused among so many.
    The service leaves it out of what depends on the entity itself, if it is the only one."""
    return None if count == 1 and refusal.code in _WITHOUT_INDEX else index


_WITHOUT_INDEX: Final = frozenset({"ResourceNotFound", "UpdateConditionNotSatisfied"})


def preference_told(refusal: Refusal, request: PartRequest) -> Headers:
    """What the answer to a refused insert says of its Prefer: nothing if there is no such table."""
    if request.method != "POST" or refusal.code in _BEFORE_PREFERENCE:
        return []
    return preference_headers(request.headers.get("prefer", "").strip().lower())


_BEFORE_PREFERENCE: Final = frozenset({"TableNotFound", "InvalidResourceName", "OutOfRangeInput"})


class Group:
    """The parts of a group so far: of one table, of one partition, and no entity twice."""

    def __init__(self, exchange: Exchange, change_of: ChangeOf) -> None:
        self.parts: list[Part] = []
        self._exchange = exchange
        self._change_of = change_of
        self._rows: set[str] = set()
        self._last: tuple[PartRequest, ChangeHead] | None = None

    def decode(self, request: PartRequest) -> Part:
        """The change that a part asks for. What the head says is not read again if it is that of
        the part before: equal headers are mostly one object."""
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


# Answers


_VERSION_1: Final = (b"DataServiceVersion", b"1.0;")
_VERSION_3: Final = (b"DataServiceVersion", b"3.0;")
"""Only parts of a batch say this: the first those that need nothing of OData 3."""


def _part_of(response: Response, version: tuple[bytes, bytes] = _VERSION_3) -> PartResponse:
    assert isinstance(response.body, bytes)
    return PartResponse(response.status, [*response.headers, version], response.body)


class Answers:
    """The answers to the changes of a group that was carried out."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._formatted: list[bytes] = []
        # Those to inserts differ only in the address, which stands between these.
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
    """That to the change that was refused, with which the others were."""
    return _changes_answer([format_part(_part_of(refused))])


def _changes_answer(formatted: list[bytes]) -> Response:
    return _accepted(format_changeset(formatted, str(uuid.uuid4()), str(uuid.uuid4())))


def query_answer(response: Response) -> Response:
    return _accepted(format_query(_part_of(response), str(uuid.uuid4())))


def _accepted(formatted: tuple[str, bytes]) -> Response:
    content_type, body = formatted
    return Response(202, [*COMMON, (b"Content-Type", content_type.encode())], body)
