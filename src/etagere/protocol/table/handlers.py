"""The handlers of the table service: one function per operation, each named in its row."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from etagere.auth.permissions import READ_ENTITIES, Permission, authorize
from etagere.engine.interface import Refused, abort_if, unwrap
from etagere.errors import Refusal
from etagere.model.ids import new_id
from etagere.model.tables import (
    NO_KEY_LIMITS,
    ChangeEntities,
    ChangeKind,
    CreateTable,
    DeleteTable,
    GetEntity,
    KeyLimits,
    Keys,
    SetTableAccess,
    TableName,
)
from etagere.operations.table import entities, tables
from etagere.operations.table import queries as entity_queries
from etagere.operations.table.queries import LIMITS, EntityPage, Query
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
from etagere.protocol.codecs.multipart import OPERATIONS_MAX, PartRequest, SingleQuery
from etagere.protocol.http.messages import Response
from etagere.protocol.rest import requests
from etagere.protocol.rest.access_policies import policies_response, read_policies
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.refusals import error_response
from etagere.protocol.table import changes, groups, queries
from etagere.protocol.table.addresses import Address, AddressKind
from etagere.protocol.table.dependencies import TableDependencies
from etagere.protocol.table.refusals import ODATA_PART
from etagere.protocol.time_slices import TimeSlice
from etagere.rules.entities import check_keys, check_table_name, format_etag

_ENTITY_BYTES_MAX: Final = 4 << 20
"""The text of the largest entity, 512 Ki UTF-16 units, takes 3 MiB if all of it is escaped. A
binary is only a third longer in base64."""
_TABLE_BYTES_MAX: Final = 64 << 10
_KEYS_NOT_ALL: Final = (
    "The number of keys specified in the URI does not match number of key properties for the "
    "resource '{resource}'."
)
# Groups and pages are mostly short, and each pause has a cost.
_SLICE_SECONDS: Final = 0.005
# The most that is encoded before other requests run: about as much work.
_ENCODED_VALUES_MAX: Final = 4_000
_ENCODED_BYTES_MAX: Final = 256 << 10
_SEARCH_SECONDS_MAX: Final = 5.0
"""After this time without a match, the client gets an empty page, and may continue."""
# The values of an entity besides its properties: keys, timestamp and ETag.
_VALUES_BESIDES_PROPERTIES: Final = 6


# Tables


async def query_tables(exchange: Exchange, address: Address, deps: TableDependencies) -> Response:
    queries.check_parameters(exchange)
    if address.table:
        return await _get_table(exchange, deps, address.table)
    level, limit = _level(exchange), queries.limit(exchange)
    asked, start = await queries.filter_of(exchange), queries.table_start_of(exchange)
    command = tables.ListTables(exchange.request.account, limit, start)
    if not limit:
        page = tables.TablePage([])
    elif asked is None:
        page = await deps.engine.read(tables.list_tables, command)
    else:
        query = tables.TableQuery(command, queries.table_matcher(asked), asked.terms)
        read_class = exchange.read_class("query of tables")
        page = await deps.engine.read_in_thread(tables.query_tables, query, read_class)
    names = [table.name for table in page.tables]
    headers = [*_json(level), *queries.table_continuation(page.following)]
    return Response(200, headers, encode_tables(names, _origin(exchange), level))


async def _get_table(exchange: Exchange, deps: TableDependencies, name: str) -> Response:
    level = _level(exchange)
    if check_table_name(name) is not None:
        raise Refused(Refusal("ResourceNotFound"))
    with _as_resource():
        table = await deps.engine.read(tables.get_table, _table_name(exchange, name))
    return Response(200, _json(level), encode_table(table.name, _origin(exchange), level))


async def create_table(exchange: Exchange, _: Address, deps: TableDependencies) -> Response:
    level = _level(exchange)
    name = unwrap(decode_table(await exchange.http.body.read(_TABLE_BYTES_MAX)))
    table = _table_name(exchange, name)
    await deps.engine.write(tables.create_table, CreateTable(table, new_id()))
    prefer = (exchange.header("prefer") or "").strip().lower()
    headers = [*changes.COMMON, *changes.preference_headers(prefer)]
    address = f"{_origin(exchange).address}/Tables('{name}')".encode()
    headers.append((b"Location", address))
    if prefer == changes.NO_CONTENT:
        return Response(204, [*headers, (b"DataServiceId", address)])
    body = encode_table(name, _origin(exchange), level)
    return Response(201, [*headers, (b"Content-Type", level.content_type)], body)


async def delete_table(exchange: Exchange, address: Address, deps: TableDependencies) -> Response:
    table = _table_name(exchange, address.table)
    await deps.engine.write(tables.delete_table, DeleteTable(table))
    return Response(204, list(changes.COMMON))


async def get_table_acl(exchange: Exchange, address: Address, deps: TableDependencies) -> Response:
    name = _table_name(exchange, address.table)
    with _as_resource():
        table = await deps.engine.read(tables.get_table, name)
    return policies_response(table.policies)


async def set_table_acl(exchange: Exchange, address: Address, deps: TableDependencies) -> Response:
    policies = await read_policies(exchange)
    command = SetTableAccess(_table_name(exchange, address.table), policies)
    with _as_resource():
        await deps.engine.write(tables.set_table_access, command)
    return Response(204)


# Entities


async def query_entities(exchange: Exchange, address: Address, deps: TableDependencies) -> Response:
    queries.check_parameters(exchange)
    if address.keys is not None:
        return await _get_entity(exchange, deps, address.table, address.keys)
    level, select = _level(exchange), queries.select_of(exchange)
    query = Query(
        _table_name(exchange, address.table),
        queries.limit(exchange),
        await queries.filter_of(exchange),
        queries.start_of(exchange),
        queries.key_limits_of(exchange),
        LIMITS.brief_rows_max,
        shown_bytes=select_bytes(select),
    )
    page = await _found(exchange, deps, query) if query.limit else await _no_page(deps, query)
    encoder = EntityEncoder(address.table, _origin(exchange), level, select)
    following = await _encode(page, encoder)
    headers = [*_json(level), *queries.continuation(following)]
    return Response(200, headers, encoder.page())


async def _no_page(deps: TableDependencies, query: Query) -> EntityPage:
    """Returns the result of a query for no entities: an empty last page."""
    await deps.engine.read(tables.get_table, query.table)
    return EntityPage([], [])


async def _found(exchange: Exchange, deps: TableDependencies, query: Query) -> EntityPage:
    page = None if _is_long(query) else await deps.engine.read(entity_queries.query_entities, query)
    if page is None:
        return await _search_in_thread(exchange, deps, query._replace(rows_max=None))
    _note(deps, query, page)
    return page


async def _search_in_thread(
    exchange: Exchange, deps: TableDependencies, query: Query
) -> EntityPage:
    """Searches in a thread, and continues in new snapshots until something is found. The entities
    found are from one snapshot."""
    read_class = exchange.read_class("query of entities")
    ends = time.monotonic() + _SEARCH_SECONDS_MAX
    while True:
        page = await deps.engine.read_in_thread(entity_queries.query_entities, query, read_class)
        assert page is not None
        _note(deps, query, page)
        if page.entities or page.following is None or time.monotonic() > ends:
            return page
        query = query._replace(start=page.following)


def _note(deps: TableDependencies, query: Query, page: EntityPage) -> None:
    if page.used is not None:
        deps.indexing.count_use(query.table, page.used)
    if page.missing_index is not None:
        deps.indexing.request(query.table, page.missing_index)


async def _get_entity(
    exchange: Exchange, deps: TableDependencies, table: str, keys: Keys
) -> Response:
    level, select = _level(exchange), queries.select_of(exchange)
    if check_keys(keys) is not None:
        raise Refused(Refusal("ResourceNotFound"))
    _require_within_limits(queries.key_limits_of(exchange), keys)
    command = GetEntity(_table_name(exchange, table), keys)
    entity = (await deps.engine.read(entities.get_entity, command)).entity
    body = encode_entity(keys, entity, table, _origin(exchange), level, select)
    return Response(200, [*_json(level), (b"ETag", format_etag(entity.stamp).encode())], body)


async def change_entity(
    exchange: Exchange, address: Address, deps: TableDependencies, *, kind: ChangeKind
) -> Response:
    fields = exchange.request.fields
    abort_if(changes.check_upsert(kind, exchange.version))
    if kind is not ChangeKind.DELETE:
        abort_if(changes.check_content_type(fields))
    body = await exchange.http.body.read(_ENTITY_BYTES_MAX)
    query_format = exchange.parameter("$format") or ""
    asked = changes.decode_change(kind, address, fields, body, query_format)
    _require_within_limits(queries.key_limits_of(exchange), asked.change.keys)
    command = ChangeEntities(_table_name(exchange, address.table), (asked.change,))
    try:
        (stamp,) = await deps.engine.write(entities.change_entities, command)
    except Refused as refused:
        refusal = changes.with_sent_condition(_without_index(refused.refusal), fields)
        raise Refused(refusal) from None
    return changes.answer(asked, stamp, address.table, _origin(exchange))


async def refuse_below(exchange: Exchange, address: Address, deps: TableDependencies) -> Response:
    """Refuses the request with the message of the service, by which clients recognize the
    mistake."""
    await deps.engine.read(tables.get_table, _table_name(exchange, address.table))
    if exchange.request.method == "POST":
        abort_if(changes.check_content_type(exchange.request.fields))
        raise Refused(Refusal("PropertiesNeedValue"))
    resource = f"{exchange.request.account}.{address.table}"
    raise Refused(Refusal("InvalidInput", message_override=_KEYS_NOT_ALL.format(resource=resource)))


# Groups


async def entity_group_transaction(
    exchange: Exchange, _: Address, deps: TableDependencies
) -> Response:
    batch = await groups.read_batch(exchange)
    if isinstance(batch, SingleQuery):
        return await _single_query(exchange, deps, batch.request)
    group = groups.Group(exchange, deps.change_of)
    key_limits = queries.key_limits_of(exchange)
    allowed: set[tuple[ChangeKind, str]] = set()
    time_slice = TimeSlice(_SLICE_SECONDS)
    parts_asked = batch.requests
    if batch.is_too_long:
        index = OPERATIONS_MAX - 1
        return _refused_group(exchange, groups.too_long(), parts_asked[-1], index)
    try:
        for request in parts_asked:
            await time_slice.yield_if_over()
            part = group.decode(request)
            kind = part.asked.change.change
            # Each part needs the permission that it would need alone.
            if (kind, part.table) not in allowed:
                abort_if(check_table_name(part.table))
                _authorize(exchange, deps.permissions[kind], part.table)
                allowed.add((kind, part.table))
            _require_within_limits(key_limits, part.asked.change.keys)
            group.add(part)
    except Refused as refused:
        index = len(group.parts)
        reported = groups.reported_index(refused.refusal, index, len(parts_asked))
        return _refused_group(exchange, refused.refusal, parts_asked[index], reported)
    parts = group.parts
    table = _table_name(exchange, parts[0].table)
    command = ChangeEntities(table, tuple(part.asked.change for part in parts))
    try:
        stamps = await deps.engine.write(entities.change_entities, command)
    except Refused as refused:
        index = int(refused.refusal.facts.get(entities.INDEX, 0))
        request = parts_asked[index]
        refusal = changes.with_sent_condition(_without_index(refused.refusal), request.headers)
        reported = groups.reported_index(refusal, index, len(parts_asked))
        return _refused_group(exchange, refusal, request, reported)
    answers = groups.Answers(_origin(exchange))
    for part, stamp in zip(parts, stamps, strict=True):
        answers.add(part, stamp)
        await time_slice.yield_if_over()
    return answers.response()


def _authorize(exchange: Exchange, permission: Permission, table: str) -> None:
    unwrap(authorize(exchange.principal, "table", permission, table, version=exchange.version))


async def _single_query(
    exchange: Exchange, deps: TableDependencies, request: PartRequest
) -> Response:
    """Answers a batch that consists of one query."""
    try:
        address, query = groups.address_of(exchange, request)
        if address.kind not in (AddressKind.ENTITIES, AddressKind.ENTITY):
            raise Refused(Refusal("InvalidInput", {"Reason": "A part queries no entities."}))
        _authorize(exchange, READ_ENTITIES, address.table)
        inner = exchange.nested(
            request.method,
            f"{exchange.request.path}?{query}",
            request.headers,
            same_sender=True,
        )
        response = await query_entities(inner, address, deps)
    except Refused as refused:
        # Only changes have an index.
        response = _refused(exchange, refused.refusal, None)
    return groups.query_answer(response)


def _is_long(query: Query) -> bool:
    """Whether to query in a thread at once."""
    terms = 0 if query.filter is None else query.filter.terms
    # A client that continues with large pages mostly gets another full one.
    goes_on = query.start is not None and query.limit > LIMITS.brief_rows_max
    return goes_on or terms * LIMITS.step_rows_min > LIMITS.brief_terms_max


async def _encode(page: EntityPage, encoder: EntityEncoder) -> Keys | None:
    """Encodes a page in time slices; returns the first entity of the next page."""
    time_slice = TimeSlice(_SLICE_SECONDS)
    start, values, stored_bytes = 0, 0, 0
    for at, ((_, entity), size) in enumerate(zip(page.entities, page.sizes, strict=True), 1):
        values += len(entity.properties.names) + _VALUES_BESIDES_PROPERTIES
        stored_bytes += size
        if values < _ENCODED_VALUES_MAX and stored_bytes < _ENCODED_BYTES_MAX:
            continue
        added = encoder.add(page.entities[start:at])
        if start + added < at:
            return page.entities[start + added][0]
        start, values, stored_bytes = at, 0, 0
        await time_slice.yield_if_over()
    added = encoder.add(page.entities[start:])
    if start + added < len(page.entities):
        return page.entities[start + added][0]
    return page.following


def _level(exchange: Exchange) -> Level:
    return unwrap(parse_level(exchange.header("accept"), exchange.parameter("$format")))


def _json(level: Level) -> list[tuple[bytes, bytes]]:
    return [*changes.COMMON, (b"Content-Type", level.content_type)]


def _origin(exchange: Exchange) -> Origin:
    return Origin(requests.endpoint(exchange).rstrip("/"), exchange.request.account)


def _table_name(exchange: Exchange, name: str) -> TableName:
    abort_if(check_table_name(name))
    return TableName(exchange.request.account, name)


def _require_within_limits(key_limits: KeyLimits, keys: Keys) -> None:
    if key_limits is not NO_KEY_LIMITS and not key_limits.contains(keys):
        raise Refused(Refusal("AuthorizationFailure"))


def _without_index(refusal: Refusal) -> Refusal:
    facts = {name: fact for name, fact in refusal.facts.items() if name != entities.INDEX}
    return msgspec.structs.replace(refusal, facts=facts)


@contextmanager
def _as_resource() -> Iterator[None]:
    """Changes the error code for a missing table that is requested as a resource."""
    try:
        yield
    except Refused as refused:
        if refused.refusal.code != "TableNotFound":
            raise
        raise Refused(Refusal("ResourceNotFound")) from None


def _refused_group(
    exchange: Exchange, refusal: Refusal, request: PartRequest, index: int | None
) -> Response:
    """Returns the response to a group of which this change was refused."""
    response = _refused(exchange, refusal, index)
    response.headers = [*response.headers, *groups.preference_of_refused(refusal, request)]
    return groups.refused_answer(response)


def _refused(exchange: Exchange, refusal: Refusal, index: int | None) -> Response:
    """Returns the response to a part of a batch, with the index of the change, if any."""
    return error_response(exchange, refusal, ODATA_PART, operation_index=index)
