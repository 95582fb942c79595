"""The indexes for `etagere check`: how their rows are derived from blobs and entities."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from etagere.bodies.audit.indexes import Index, Rows
from etagere.bodies.audit.snapshot import Audit
from etagere.engine.records import Collection
from etagere.model.blobs import Blob
from etagere.model.tables import Entity, Keys, PropertyIndex
from etagere.operations.blob.collections import (
    BLOBS,
    CONTAINERS,
    TAG_VALUES,
    TAGGED_BLOBS,
    TAGGED_CONTAINERS,
)
from etagere.operations.table.collections import (
    DELETED_TABLES,
    DROPPED_INDEXES,
    ENTITIES,
    PROPERTY_VALUES,
    TABLES,
)
from etagere.rules.indexes import indexed_value

# Tags


_TAG_ROWS: Final[tuple[Collection[Any, Any], ...]] = (TAGGED_CONTAINERS, TAGGED_BLOBS, TAG_VALUES)


def _has_tags(audit: Audit) -> bool:
    """Returns whether there are any rows; without them, blobs need not be read."""
    return any(next(audit.rows(rows, first_time=False), None) is not None for rows in _TAG_ROWS)


def _containers(audit: Audit) -> dict[bytes, tuple[str, str]]:
    """Returns account and name of containers by id, including deleted ones that are not removed
    yet."""
    rows = audit.rows(TAGGED_CONTAINERS, first_time=False)
    found = {container_id: (record.account, record.name) for _, (container_id,), record, _ in rows}
    containers = audit.rows(CONTAINERS, first_time=False)
    return found | {container.id: key for _, key, container, _ in containers}


_Row = tuple[object, ...]


def _by_tags(row: Callable[[str, str, str, _Row], _Row]) -> Callable[[Audit], Rows | None]:
    """Derives the rows of each tag of a blob; `row` builds one from the account, the tag, its value
    and the place of the blob."""

    def begin(audit: Audit) -> Rows | None:
        if not _has_tags(audit):
            return None
        containers = _containers(audit)

        def of(key: tuple[bytes, str], blob: Blob) -> Iterator[tuple[_Row, bool]]:
            container_id, name = key
            if blob.tags and container_id in containers:
                account, container = containers[container_id]
                for tag, value in blob.tags:
                    yield row(account, tag, value, (container, container_id, name)), True

        return Rows(of)

    return begin


# Properties


def _by_property(audit: Audit) -> Rows | None:
    tables = audit.rows(TABLES, first_time=False)
    indexes = {table.id: table.indexes for _, _, table, _ in tables if table.indexes}
    deleted = {table_id for _, (table_id,), _, _ in audit.rows(DELETED_TABLES, first_time=False)}
    dropped = {key for _, key, _, _ in audit.rows(DROPPED_INDEXES, first_time=False)}
    if not indexes and not deleted and not dropped:
        return None

    def of(key: tuple[bytes, str, str], entity: Entity) -> Iterator[tuple[_Row, bool]]:
        table_id, keys = key[0], Keys(*key[1:])
        for index in indexes.get(table_id, ()):
            value = indexed_value(index.name, keys, entity)
            if value is not None:
                yield (table_id, index.number, value, *key[1:]), _is_built(index, keys)

    return Rows(of, lambda row: row[0] in deleted or row[:2] in dropped)


def _is_built(index: PropertyIndex, keys: Keys) -> bool:
    return index.is_ready or (index.built is not None and keys <= index.built)


INDEXES: Final = (
    Index(TAGGED_BLOBS, BLOBS, _by_tags(lambda owner, tag, value, at: (owner, tag, value, *at))),
    Index(TAG_VALUES, BLOBS, _by_tags(lambda owner, tag, _, at: (owner, tag, *at))),
    Index(PROPERTY_VALUES, ENTITIES, _by_property),
)
