"""Changes of entities, alone or in a group: from a request to what is asked, and to its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

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


class Asked(NamedTuple):
    """A change, and how its answer is wanted."""

    change: EntityChange
    level: Level
    prefer: str = ""


def method_of(method: str, fields: Mapping[str, str]) -> str:
    """The method that is meant: those that a proxy would not let through come inside of a POST."""
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


class ChangeHead(NamedTuple):
    """What the head of a request says of a change."""

    kind: ChangeKind
    address: Address
    if_match: int | None
    level: Level | Refusal
    """Refused only if nothing is wrong with the body."""
    prefer: str


def decode_head(
    kind: ChangeKind, address: Address, fields: Mapping[str, str], query_format: str
) -> ChangeHead:
    stamp = None if kind is ChangeKind.INSERT else _if_match(kind, fields)
    level = parse_level(fields.get("accept"), query_format)
    prefer = fields.get("prefer", "").strip().lower()
    return ChangeHead(kind, address, stamp, level, prefer)


def _if_match(kind: ChangeKind, fields: Mapping[str, str]) -> IfMatch:
    """What If-Match asks for. An empty one is refused: taken for none, it would make a conditional
    write unconditional."""
    written = fields.get("if-match")
    if written is None:
        if kind is ChangeKind.DELETE:
            raise Refused(Refusal("MissingRequiredHeader", {"HeaderName": "If-Match"}))
        return ANY
    return unwrap(parse_etag(written))


def check_upsert(kind: ChangeKind, version: str) -> Refusal | None:
    """Versions without upserts need an If-Match for every change of an entity."""
    if version < UPSERTS_SINCE and kind in _UPSERTS:
        return Refusal("MissingRequiredHeader", {"HeaderName": "If-Match"})
    return None


UPSERTS_SINCE: Final = "2011-08-18"
_UPSERTS: Final = frozenset({ChangeKind.INSERT_OR_REPLACE, ChangeKind.INSERT_OR_MERGE})


def with_sent_condition(refusal: Refusal, fields: Mapping[str, str]) -> Refusal:
    """A refusal of an unmet condition, with the condition as it was sent."""
    if "Condition" not in refusal.facts:
        return refusal
    sent: dict[str, str | int] = {"Sent": fields.get("if-match", "")}
    return msgspec.structs.replace(refusal, facts=refusal.facts | sent)


def decode_body(head: ChangeHead, body: bytes) -> Asked:
    kind, address, if_match, level, prefer = head
    keys = address.keys
    if kind is ChangeKind.DELETE:
        assert keys is not None
        properties = Properties()
    else:
        decoded = unwrap(decode_entity(body, is_addressed=keys is not None))
        keys, properties = _keys(decoded, address), decoded.properties
    abort_if(check_keys(keys))
    abort_if(check_entity(keys, properties, sent_bytes=len(body)))
    if isinstance(level, Refusal):
        raise Refused(level)
    return Asked(EntityChange(kind, keys, properties, if_match), level, prefer)


def decode_change(
    kind: ChangeKind, address: Address, fields: Mapping[str, str], body: bytes, query_format: str
) -> Asked:
    return decode_body(decode_head(kind, address, fields, query_format), body)


def _keys(decoded: DecodedEntity, address: Address) -> Keys:
    """The keys in the address, or where it has none, those in the body."""
    if address.keys is not None:
        in_body = (decoded.partition, decoded.row)
        for name, told, meant in zip(
            ("PartitionKey", "RowKey"),
            in_body,
            (address.keys.partition, address.keys.row),
            strict=True,
        ):
            if told is not None and told != meant:
                facts: dict[str, str | int] = {"PropertyName": name}
                raise Refused(Refusal("InvalidInput", facts))
        return address.keys
    if decoded.partition is None or decoded.row is None:
        missing = "PartitionKey" if decoded.partition is None else "RowKey"
        raise Refused(Refusal("PropertiesNeedValue", {"PropertyName": missing}))
    return Keys(decoded.partition, decoded.row)


# Answers

NO_CONTENT: Final = "return-no-content"
CONTENT: Final = "return-content"

COMMON: Final[Headers] = [
    (b"Cache-Control", b"no-cache"),
    (b"X-Content-Type-Options", b"nosniff"),
]
"""What every answer about tables and entities has."""


def preference_headers(prefer: str) -> Headers:
    """Said only if it was asked for."""
    if prefer in (NO_CONTENT, CONTENT):
        return [(b"Preference-Applied", prefer.encode())]
    return []


def address_of_entity(origin: Origin, table: str, keys: Keys) -> bytes:
    return f"{origin.address}/{entity_path(table, keys)}".encode()


def answer(asked: Asked, stamp: int, table: str, origin: Origin) -> Response:
    """What is told of a change that was carried out."""
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
