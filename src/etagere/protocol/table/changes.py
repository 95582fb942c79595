"""Changes of entities, alone or in a group: decoding of requests, and responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from etagere.engine.interface import Refused, abort_if, unwrap
from etagere.errors import Refusal
from etagere.model.tables import ChangeKind, Entity, EntityChange, Keys, Properties
from etagere.protocol.codecs.entities import DecodedEntity, decode_entity
from etagere.protocol.codecs.entity_answers import Level, Origin, encode_entity, parse_level
from etagere.protocol.codecs.entity_forms import entity_path
from etagere.protocol.http.messages import Response
from etagere.protocol.rest.responses import Headers
from etagere.protocol.table.addresses import Address
from etagere.rules.entities import (
    ANY,
    IfMatch,
    check_entity,
    check_keys,
    format_etag,
    parse_etag,
)

TUNNELLED_METHODS: Final = frozenset({"PUT", "DELETE", "MERGE", "PATCH"})


class RequestedChange(msgspec.Struct, frozen=True):
    """A change, and the requested form of its response."""

    change: EntityChange
    level: Level
    prefer: str = ""


def method_of(method: str, fields: Mapping[str, str]) -> str:
    """Returns the effective method: methods that a proxy would not forward are sent in a header of
    a POST."""
    tunnelled = fields.get("x-http-method")
    if tunnelled is None:
        return method
    if method != "POST":
        raise Refused(Refusal("XMethodNotUsingPost"))
    if "," in tunnelled:
        raise Refused(Refusal("XMethodIncorrectCount"))
    if tunnelled.upper() not in TUNNELLED_METHODS:
        raise Refused(Refusal("XMethodIncorrectValue"))
    return tunnelled.upper()


def check_content_type(fields: Mapping[str, str]) -> Refusal | None:
    media_type = fields.get("content-type", "").partition(";")[0].strip().lower()
    return None if media_type in ("", "application/json") else Refusal("MediaTypeNotSupported")


class ChangeHead(msgspec.Struct, frozen=True):
    """The part of a change that is in the head of a request."""

    kind: ChangeKind
    address: Address
    if_match: int | None
    level: Level | Refusal
    """A refusal is raised only if the body is valid."""
    prefer: str


def decode_head(
    kind: ChangeKind, address: Address, fields: Mapping[str, str], query_format: str
) -> ChangeHead:
    stamp = None if kind is ChangeKind.INSERT else _if_match(kind, fields)
    level = parse_level(fields.get("accept"), query_format)
    prefer = fields.get("prefer", "").strip().lower()
    return ChangeHead(kind, address, stamp, level, prefer)


def _if_match(kind: ChangeKind, fields: Mapping[str, str]) -> IfMatch:
    """Parses If-Match. An empty one is refused: ignoring it would make a conditional write
    unconditional."""
    written = fields.get("if-match")
    if written is None:
        if kind is ChangeKind.DELETE:
            raise Refused(Refusal("MissingRequiredHeader", {"HeaderName": "If-Match"}))
        return ANY
    return unwrap(parse_etag(written))


def check_upsert(kind: ChangeKind, version: str) -> Refusal | None:
    """Refuses a change without If-Match in versions without upserts."""
    if version < UPSERTS_SINCE and kind in _UPSERTS:
        return Refusal("MissingRequiredHeader", {"HeaderName": "If-Match"})
    return None


UPSERTS_SINCE: Final = "2011-08-18"
_UPSERTS: Final = frozenset({ChangeKind.INSERT_OR_REPLACE, ChangeKind.INSERT_OR_MERGE})


def with_sent_condition(refusal: Refusal, fields: Mapping[str, str]) -> Refusal:
    """Returns the refusal of a condition, with the condition as it was sent."""
    if "Condition" not in refusal.facts:
        return refusal
    sent: dict[str, str | int] = {"Sent": fields.get("if-match", "")}
    return msgspec.structs.replace(refusal, facts=refusal.facts | sent)


def decode_body(head: ChangeHead, body: bytes) -> RequestedChange:
    keys = head.address.keys
    if head.kind is ChangeKind.DELETE:
        assert keys is not None
        properties = Properties()
    else:
        decoded = unwrap(decode_entity(body, is_addressed=keys is not None))
        keys, properties = _keys(decoded, head.address), decoded.properties
    abort_if(check_keys(keys))
    abort_if(check_entity(keys, properties, sent_bytes=len(body)))
    change = EntityChange(head.kind, keys, properties, head.if_match)
    return RequestedChange(change, unwrap(head.level), head.prefer)


def decode_change(
    kind: ChangeKind, address: Address, fields: Mapping[str, str], body: bytes, query_format: str
) -> RequestedChange:
    return decode_body(decode_head(kind, address, fields, query_format), body)


def _keys(decoded: DecodedEntity, address: Address) -> Keys:
    """Returns the keys in the address or, if it has none, in the body."""
    if address.keys is not None:
        in_body = (decoded.partition, decoded.row)
        for name, sent, addressed in zip(
            ("PartitionKey", "RowKey"),
            in_body,
            (address.keys.partition, address.keys.row),
            strict=True,
        ):
            if sent is not None and sent != addressed:
                facts: dict[str, str | int] = {"PropertyName": name}
                raise Refused(Refusal("InvalidInput", facts))
        return address.keys
    if decoded.partition is None or decoded.row is None:
        missing = "PartitionKey" if decoded.partition is None else "RowKey"
        raise Refused(Refusal("PropertiesNeedValue", {"PropertyName": missing}))
    return Keys(decoded.partition, decoded.row)


# Responses

NO_CONTENT: Final = "return-no-content"
CONTENT: Final = "return-content"

COMMON: Final[Headers] = [
    (b"Cache-Control", b"no-cache"),
    (b"X-Content-Type-Options", b"nosniff"),
]
"""The headers of all responses about tables and entities."""


def preference_headers(prefer: str) -> Headers:
    """Returns the header that confirms a preference, if there was one."""
    if prefer in (NO_CONTENT, CONTENT):
        return [(b"Preference-Applied", prefer.encode())]
    return []


def address_of_entity(origin: Origin, table: str, keys: Keys) -> bytes:
    return f"{origin.address}/{entity_path(table, keys)}".encode()


def answer(asked: RequestedChange, stamp: int, table: str, origin: Origin) -> Response:
    """Returns the response to a change."""
    change = asked.change
    if change.change is ChangeKind.DELETE:
        return Response(204, list(COMMON))
    headers = [*COMMON, (b"ETag", format_etag(stamp).encode())]
    if change.change is not ChangeKind.INSERT:
        return Response(204, headers)
    headers += preference_headers(asked.prefer)
    address = address_of_entity(origin, table, change.keys)
    headers.append((b"Location", address))
    if asked.prefer == NO_CONTENT:
        headers.append((b"DataServiceId", address))
        return Response(204, headers)
    headers.append((b"Content-Type", asked.level.content_type))
    entity = Entity(stamp, change.properties)
    body = encode_entity(change.keys, entity, table, origin, asked.level)
    return Response(201, headers, body)
