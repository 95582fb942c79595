"""What each operation of the table service takes from a request and gives back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from etagere.auth.permissions import authorize
from etagere.engine.interface import Engine, Refused, abort_if
from etagere.errors import Refusal, http_status
from etagere.jobs.indexing import Indexing
from etagere.model.ids import new_id
from etagere.model.tables import (
    EVERYTHING,
    Change,
    ChangeEntities,
    CreateTable,
    DeleteTable,
    GetEntity,
    Keys,
    Reach,
    SetTableAccess,
    TableName,
)
from etagere.operations.table import entities, tables
from etagere.operations.table.queries import LIMITS, EntityPage, Query, query_entities
from etagere.protocol import requests
from etagere.protocol.answers import XML
from etagere.protocol.codecs import access_policies
from etagere.protocol.codecs.entities import decode_table
from etagere.protocol.codecs.entity_answers import (
    EntityEncoder,
    Level,
    Origin,
    encode_entity,
    encode_table,
    encode_tables,
    parse_level,
    select_bytes,
)
from etagere.protocol.codecs.errors import Occasion, encode_odata
from etagere.protocol.codecs.multipart import OPERATIONS_MAX, PartRequest, SingleQuery
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import Response
from etagere.protocol.service import is_trusted
from etagere.protocol.table import changes, groups, queries
from etagere.protocol.table.addresses import Address, Kind
from etagere.protocol.table.refusals import odata_error_headers
from etagere.protocol.turns import Turn
from etagere.rules.entities import check_keys, check_table_name, format_etag

_ENTITY_BYTES_MAX: Final = 4 << 20
"""The text of an entity of the largest size, 512 Ki UTF-16 units, takes 3 MiB if all of it is
written as escapes. A binary is only a third longer in base64."""
_TABLE_BYTES_MAX: Final = 64 << 10
_KEYS_NOT_ALL: Final = (
    "The number of keys specified in the URI does not match number of key properties for the "
    "resource '{resource}'."
)
# Groups and pages are short work mostly, and each turn that is given away has its price.
_TURN_SECONDS_MAX: Final = 0.005
# What is encoded before others get their turn: about as much work.
_ENCODED_VALUES_MAX: Final = 4_000
_ENCODED_BYTES_MAX: Final = 256 << 10
_SEARCH_SECONDS_MAX: Final = 5.0
"""After so long without a match, a client is given an empty page, and may go on."""
# What an entity takes besides its properties: its keys, its timestamp and its ETag.
_VALUES_BESIDE: Final = 6


class Handlers:
    """One method per operation, with the address that its request names."""

    def __init__(self, engine: Engine, indexing: Indexing) -> None:
        self._engine = engine
        self._indexing = indexing

    # Tables

    async def query_tables(self, exchange: Exchange, address: Address) -> Response:
        queries.check_parameters(exchange)
        if address.table:
            return await self._get_table(exchange, address.table)
        level, limit = _level(exchange), queries.limit(exchange)
        asked, start = await queries.filter_of(exchange), queries.table_start_of(exchange)
        command = tables.ListTables(exchange.signed.account, limit, start)
        if not limit:
            page = tables.TablePage([])
        elif asked is None:
            page = await self._engine.read(tables.list_tables, command)
        else:
            query = tables.TableQuery(command, queries.table_matcher(asked), asked.terms)
            lane = exchange.lane("query of tables")
            page = await self._engine.read_aside(tables.query_tables, query, lane)
        names = [table.name for table in page.tables]
        headers = [*_json(level), *queries.table_continuation(page.following)]
        return Response(200, headers, encode_tables(names, _origin(exchange), level))

    async def _get_table(self, exchange: Exchange, name: str) -> Response:
        level = _level(exchange)
        if check_table_name(name) is not None:
            raise Refused(Refusal("ResourceNotFound"))
        with _as_resource():
            table = await self._engine.read(tables.get_table, _table_name(exchange, name))
        return Response(200, _json(level), encode_table(table.name, _origin(exchange), level))

    async def create_table(self, exchange: Exchange, _: Address) -> Response:
        level = _level(exchange)
        name = decode_table(await exchange.http.body.read(_TABLE_BYTES_MAX))
        if isinstance(name, Refusal):
            raise Refused(name)
        table = _table_name(exchange, name)
        await self._engine.write(tables.create_table, CreateTable(table, new_id()))
        prefer = (exchange.header("prefer") or "").strip().lower()
        headers = [*changes.COMMON, *changes.preference_headers(prefer)]
        address = f"{_origin(exchange).address}/Tables('{name}')".encode()
        headers.append((b"Location", address))
        if prefer == changes.NO_CONTENT:
            return Response(204, [*headers, (b"DataServiceId", address)])
        body = encode_table(name, _origin(exchange), level)
        return Response(201, [*headers, (b"Content-Type", level.content_type)], body)

    async def delete_table(self, exchange: Exchange, address: Address) -> Response:
        table = _table_name(exchange, address.table)
        await self._engine.write(tables.delete_table, DeleteTable(table))
        return Response(204, list(changes.COMMON))

    async def get_table_acl(self, exchange: Exchange, address: Address) -> Response:
        name = _table_name(exchange, address.table)
        with _as_resource():
            table = await self._engine.read(tables.get_table, name)
        return Response(200, [XML], access_policies.encode(table.policies))

    async def set_table_acl(self, exchange: Exchange, address: Address) -> Response:
        document = await exchange.http.body.read(access_policies.BYTES_MAX)
        policies = access_policies.decode(document, "table")
        if isinstance(policies, Refusal):
            raise Refused(policies)
        command = SetTableAccess(_table_name(exchange, address.table), policies)
        with _as_resource():
            await self._engine.write(tables.set_table_access, command)
        return Response(204)

    # Entities

    async def query_entities(self, exchange: Exchange, address: Address) -> Response:
        queries.check_parameters(exchange)
        if address.keys is not None:
            return await self._get_entity(exchange, address.table, address.keys)
        level, select = _level(exchange), queries.select_of(exchange)
        query = Query(
            _table_name(exchange, address.table),
            queries.limit(exchange),
            await queries.filter_of(exchange),
            queries.start_of(exchange),
            queries.reach_of(exchange),
            LIMITS.brief_rows_max,
            shown_bytes=select_bytes(select),
        )
        page = await self._found(exchange, query) if query.limit else await self._no_page(query)
        encoder = EntityEncoder(address.table, _origin(exchange), level, select)
        following = await _encode(page, encoder)
        headers = [*_json(level), *queries.continuation(following)]
        return Response(200, headers, encoder.page())

    async def _no_page(self, query: Query) -> EntityPage:
        """What is found by a query that asks for no entities: nothing, and nothing follows."""
        await self._engine.read(tables.get_table, query.table)
        return EntityPage([], [])

    async def _found(self, exchange: Exchange, query: Query) -> EntityPage:
        page = None if _is_long(query) else await self._engine.read(query_entities, query)
        if page is None:
            return await self._found_aside(exchange, query._replace(rows_max=None))
        self._note(query, page)
        return page

    async def _found_aside(self, exchange: Exchange, query: Query) -> EntityPage:
        """For as long as nothing is found, the search goes on in new snapshots: what is found in
        the end is still of one."""
        lane = exchange.lane("query of entities")
        ends = time.monotonic() + _SEARCH_SECONDS_MAX
        while True:
            page = await self._engine.read_aside(query_entities, query, lane)
            assert page is not None
            self._note(query, page)
            if page.entities or page.following is None or time.monotonic() > ends:
                return page
            query = query._replace(start=page.following)

    def _note(self, query: Query, page: EntityPage) -> None:
        if page.used is not None:
            self._indexing.note_use(query.table, page.used)
        if page.wish is not None:
            self._indexing.note(query.table, page.wish)

    async def _get_entity(self, exchange: Exchange, table: str, keys: Keys) -> Response:
        level, select = _level(exchange), queries.select_of(exchange)
        if check_keys(keys) is not None:
            raise Refused(Refusal("ResourceNotFound"))
        _require_reach(queries.reach_of(exchange), keys)
        command = GetEntity(_table_name(exchange, table), keys)
        entity = (await self._engine.read(entities.get_entity, command)).entity
        body = encode_entity(keys, entity, table, _origin(exchange), level, select)
        return Response(200, [*_json(level), (b"ETag", format_etag(entity.stamp).encode())], body)

    async def change_entity(self, exchange: Exchange, address: Address) -> Response:
        fields = exchange.signed.fields
        method = changes.method_of(exchange.signed.method, fields)
        kind = changes.kind_of_change(method, address, fields)
        assert kind is not None
        abort_if(changes.check_upsert(kind, exchange.version))
        if kind is not Change.DELETE:
            abort_if(changes.check_content_type(fields))
        body = await exchange.http.body.read(_ENTITY_BYTES_MAX)
        query_format = exchange.parameter("$format") or ""
        asked = changes.decode_change(kind, address, fields, body, query_format)
        _require_reach(queries.reach_of(exchange), asked.change.keys)
        command = ChangeEntities(_table_name(exchange, address.table), (asked.change,))
        try:
            (stamp,) = await self._engine.write(entities.change_entities, command)
        except Refused as refused:
            told = changes.with_sent_condition(_without_index(refused.refusal), fields)
            raise Refused(told) from None
        return changes.answer(asked, stamp, address.table, _origin(exchange))

    async def refuse_below(self, exchange: Exchange, address: Address) -> Response:
        """Says what is wrong in the words of the service, by which clients know the mistake."""
        await self._engine.read(tables.get_table, _table_name(exchange, address.table))
        if exchange.signed.method == "POST":
            abort_if(changes.check_content_type(exchange.signed.fields))
            raise Refused(Refusal("PropertiesNeedValue"))
        resource = f"{exchange.signed.account}.{address.table}"
        raise Refused(Refusal("InvalidInput", said=_KEYS_NOT_ALL.format(resource=resource)))

    # Groups

    async def entity_group_transaction(self, exchange: Exchange, _: Address) -> Response:
        batch = await groups.read_batch(exchange)
        if isinstance(batch, SingleQuery):
            return await self._single_query(exchange, batch.request)
        group = groups.Group(exchange)
        reach = queries.reach_of(exchange)
        allowed: set[tuple[Change, str]] = set()
        turn = Turn(_TURN_SECONDS_MAX)
        parts_asked = batch.requests
        if batch.is_too_long:
            index = OPERATIONS_MAX - 1
            return _refused_group(exchange, groups.too_long(), parts_asked[-1], index)
        try:
            for request in parts_asked:
                await turn.give_way()
                part = group.decode(request)
                kind = part.asked.change.change
                # Each part needs what it would need alone.
                if (kind, part.table) not in allowed:
                    abort_if(check_table_name(part.table))
                    self._authorize(exchange, changes.PERMISSIONS[kind], part.table)
                    allowed.add((kind, part.table))
                _require_reach(reach, part.asked.change.keys)
                group.add(part)
        except Refused as refused:
            index = len(group.parts)
            told = groups.index_told(refused.refusal, index, len(parts_asked))
            return _refused_group(exchange, refused.refusal, parts_asked[index], told)
        parts = group.parts
        table = _table_name(exchange, parts[0].table)
        command = ChangeEntities(table, tuple(part.asked.change for part in parts))
        try:
            stamps = await self._engine.write(entities.change_entities, command)
        except Refused as refused:
            index = int(refused.refusal.facts.get(entities.INDEX, 0))
            request = parts_asked[index]
            refusal = changes.with_sent_condition(_without_index(refused.refusal), request.headers)
            told = groups.index_told(refusal, index, len(parts_asked))
            return _refused_group(exchange, refusal, request, told)
        answers = groups.Answers(_origin(exchange))
        for part, stamp in zip(parts, stamps, strict=True):
            answers.add(part, stamp)
            await turn.give_way()
        return answers.response()

    def _authorize(self, exchange: Exchange, row: str, table: str) -> None:
        permit = authorize(exchange.principal, f"table.{row}", table, version=exchange.version)
        if isinstance(permit, Refusal):
            raise Refused(permit)

    async def _single_query(self, exchange: Exchange, request: PartRequest) -> Response:
        """A query that comes as a batch is the only thing in it."""
        try:
            address, query = groups.address_of(exchange, request)
            if address.kind not in (Kind.ENTITIES, Kind.ENTITY):
                raise Refused(Refusal("InvalidInput", {"Reason": "A part queries no entities."}))
            self._authorize(exchange, "query_entities", address.table)
            inner = exchange.inside(request.method, query, request.headers)
            response = await self.query_entities(inner, address)
        except Refused as refused:
            told = groups.index_told(refused.refusal, 0, 1)
            response = _refused(exchange, refused.refusal, told)
        return groups.query_answer(response)


def _is_long(query: Query) -> bool:
    """Whether to look aside at once."""
    terms = 0 if query.filter is None else query.filter.terms
    # Who goes on with large pages mostly has a whole one to come.
    goes_on = query.start is not None and query.limit > LIMITS.brief_rows_max
    return goes_on or terms * LIMITS.step_rows_min > LIMITS.brief_terms_max


async def _encode(page: EntityPage, encoder: EntityEncoder) -> Keys | None:
    """Encodes a page in steps, between which others have their turn. Returns what the next page
    starts with."""
    turn = Turn(_TURN_SECONDS_MAX)
    start, values, stored_bytes = 0, 0, 0
    for at, ((_, entity), size) in enumerate(zip(page.entities, page.sizes, strict=True), 1):
        values += len(entity.properties.names) + _VALUES_BESIDE
        stored_bytes += size
        if values < _ENCODED_VALUES_MAX and stored_bytes < _ENCODED_BYTES_MAX:
            continue
        added = encoder.add(page.entities[start:at])
        if start + added < at:
            return page.entities[start + added][0]
        start, values, stored_bytes = at, 0, 0
        await turn.give_way()
    added = encoder.add(page.entities[start:])
    if start + added < len(page.entities):
        return page.entities[start + added][0]
    return page.following


def _level(exchange: Exchange) -> Level:
    level = parse_level(exchange.header("accept"), exchange.parameter("$format"))
    if isinstance(level, Refusal):
        raise Refused(level)
    return level


def _json(level: Level) -> list[tuple[bytes, bytes]]:
    return [*changes.COMMON, (b"Content-Type", level.content_type)]


def _origin(exchange: Exchange) -> Origin:
    return Origin(requests.endpoint(exchange).rstrip("/"), exchange.signed.account)


def _table_name(exchange: Exchange, name: str) -> TableName:
    abort_if(check_table_name(name))
    return TableName(exchange.signed.account, name)


def _require_reach(reach: Reach, keys: Keys) -> None:
    if reach is not EVERYTHING and not reach.holds(keys):
        raise Refused(Refusal("AuthorizationFailure"))


def _without_index(refusal: Refusal) -> Refusal:
    facts = {name: fact for name, fact in refusal.facts.items() if name != entities.INDEX}
    return msgspec.structs.replace(refusal, facts=facts)


@contextmanager
def _as_resource() -> Iterator[None]:
    """A table that is asked for as an object of its own is a resource like others."""
    try:
        yield
    except Refused as refused:
        if refused.refusal.code != "TableNotFound":
            raise
        raise Refused(Refusal("ResourceNotFound")) from None


def _refused_group(
    exchange: Exchange, refusal: Refusal, request: PartRequest, index: int | None
) -> Response:
    """The answer to a group of which this change was refused."""
    response = _refused(exchange, refusal, index)
    response.headers = [*response.headers, *groups.preference_told(refusal, request)]
    return groups.refused_answer(response)


def _refused(exchange: Exchange, refusal: Refusal, index: int | None) -> Response:
    """The answer to a part of a batch, which says which it was."""
    occasion = Occasion(
        exchange.request_id,
        time.time_ns() // 100,
        shows_details=is_trusted(exchange),
        operation_index=index,
    )
    status = http_status(refusal.code, "table")
    return Response(status, odata_error_headers(), encode_odata(refusal, occasion))
