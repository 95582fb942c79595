"""Where the things of the table service are kept."""

from __future__ import annotations

from etagere.engine.records import ID, TEXT, Collection
from etagere.model.tables import DeletedTable, Entity, Table

TABLES: Collection[tuple[str, str], Table] = Collection("tables", Table, (TEXT, TEXT))
ENTITIES: Collection[tuple[bytes, str, str], Entity] = Collection(
    "entities", Entity, (ID, TEXT, TEXT)
)
DELETED_TABLES: Collection[tuple[bytes], DeletedTable] = Collection(
    "deleted_tables", DeletedTable, (ID,)
)
