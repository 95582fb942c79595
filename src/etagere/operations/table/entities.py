"""Operations on entities.

The changes of a group are applied in order and atomically. If one is refused, all are, and the
refusal says which it was.
"""

from __future__ import annotations

from typing import Final

import msgspec

from etagere.engine.interface import EXCLUSIVE, ReadTxn, Refused, WriteTxn, operation
from etagere.errors import Refusal
from etagere.model.tables import (
    ChangeEntities,
    ChangeKind,
    Entity,
    EntityChange,
    EntityResult,
    GetEntity,
)
from etagere.operations.table.collections import ENTITIES
from etagere.operations.table.indexes import update_rows
from etagere.operations.table.tables import find, find_guarded
from etagere.rules.entities import check_entity, check_match, format_etag, merge

INDEX: Final = "OperationIndex"
"""The detail of a refusal that tells which change of a group was refused."""

_REQUIRES_ENTITY: Final = frozenset({ChangeKind.REPLACE, ChangeKind.MERGE, ChangeKind.DELETE})
_MERGES: Final = frozenset({ChangeKind.MERGE, ChangeKind.INSERT_OR_MERGE})

_Key = tuple[bytes, str, str]


@operation
def change_entities(txn: WriteTxn, command: ChangeEntities) -> tuple[int, ...]:
    """Applies changes; returns the new stamp of each entity, 0 if it was deleted."""
    table = find_guarded(txn, command.table)
    table_id = table.id
    keys = [(table_id, change.keys.partition, change.keys.row) for change in command.changes]
    in_order = sorted(keys)
    found = dict(zip(in_order, txn.get_all(ENTITIES, in_order, EXCLUSIVE), strict=True))
    stamps = []
    for index, (key, change) in enumerate(zip(keys, command.changes, strict=True)):
        old = found[key]
        new = _changed(txn, old, change)
        if isinstance(new, Refusal):
            raise Refused(msgspec.structs.replace(new, facts=new.facts | {INDEX: index}))
        if table.indexes:
            update_rows(txn, table, change.keys, old, new)
        if new is not None:
            txn.put(ENTITIES, key, new)
            stamps.append(new.stamp)
        else:
            txn.delete(ENTITIES, key)
            stamps.append(0)
    return tuple(stamps)


def _changed(txn: WriteTxn, entity: Entity | None, change: EntityChange) -> Entity | Refusal | None:
    """Returns the changed entity, None if it is deleted, or a refusal."""
    if change.change is ChangeKind.INSERT:
        if entity is not None:
            return Refusal("EntityAlreadyExists", {"Current": format_etag(entity.stamp)})
        return Entity(txn.stamp, change.properties)
    if change.change in _REQUIRES_ENTITY and entity is None:
        return Refusal("ResourceNotFound")
    if entity is not None and (refusal := check_match(change.if_match, entity.stamp)) is not None:
        return refusal
    if change.change is ChangeKind.DELETE:
        return None
    properties = change.properties
    if entity is not None and change.change in _MERGES:
        properties = merge(entity.properties, properties)
        refusal = check_entity(change.keys, properties)
        if refusal is not None:
            return refusal
    return Entity(txn.stamp, properties)


def get_entity(txn: ReadTxn, command: GetEntity) -> EntityResult:
    table_id = find(txn, command.table).id
    entity = txn.get(ENTITIES, (table_id, command.keys.partition, command.keys.row))
    if entity is None:
        raise Refused(Refusal("ResourceNotFound"))
    return EntityResult(command.keys, entity)
