"""The collections of the table service."""

from __future__ import annotations

from etagere.engine.records import BYTES, ID, TEXT, UINT, Collection
from etagere.model.tables import DeletedTable, DroppedIndex, Entity, PropertyIndexRow, Table

TABLES: Collection[tuple[str, str], Table] = Collection("tables", Table, (TEXT, TEXT))
ENTITIES: Collection[tuple[bytes, str, str], Entity] = Collection(
    "entities", Entity, (ID, TEXT, TEXT)
)
PROPERTY_VALUES: Collection[tuple[bytes, int, bytes, str, str], PropertyIndexRow] = Collection(
    "property_values", PropertyIndexRow, (ID, UINT, BYTES, TEXT, TEXT)
)
DELETED_TABLES: Collection[tuple[bytes], DeletedTable] = Collection(
    "deleted_tables", DeletedTable, (ID,)
)
DROPPED_INDEXES: Collection[tuple[bytes, int], DroppedIndex] = Collection(
    "dropped_indexes", DroppedIndex, (ID, UINT)
)
