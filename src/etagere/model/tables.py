"""Records and commands of tables and entities.

The properties of an entity are stored in three columns: names, types and values. A scan reads many
entities to return few, and this form is the fastest to decode.
"""

from __future__ import annotations

import enum
from typing import Any

from etagere.model.base import Command, KeyEnum, Part, Record, Result
from etagere.model.service import SignedIdentifier


class Keys(Part, frozen=True, order=True):
    """The keys of an entity."""

    partition: str
    row: str


class PropertyIndex(Part, frozen=True):
    """An index on a property of a table. Once it is stored, changes keep its rows up to date; the
    rows of existing entities are added in steps."""

    number: int
    """The number of the index, which is part of the keys of its rows."""
    name: str
    built: Keys | None = None
    """The last entity whose row was added."""
    is_ready: bool = False
    """Whether all entities have rows."""
    created_at: int = 0
    """In ticks; 0 if unknown."""
    score: float = 0.0
    """The number of uses, in which older uses count less."""
    used_at: int = 0
    """When the score was updated."""


class Table(Record, frozen=True):
    """A table under (account, name in lower case)."""

    id: bytes
    name: str
    """The name, with the case in which it was created."""
    policies: tuple[SignedIdentifier, ...] = ()
    indexes: tuple[PropertyIndex, ...] = ()
    indexes_made: int = 0
    """Numbers of indexes below this are not used again."""


class DroppedIndex(Record, frozen=True):
    """A dropped index under (table id, number) whose rows are still to be removed."""


class DeletedTable(Record, frozen=True):
    """A deleted table whose entities are still to be removed."""


class Edm(enum.StrEnum):
    """The types of properties: the stored letter, and the Python type of the values."""

    STRING = "s"
    """str"""
    INT32 = "i"
    """int"""
    INT64 = "l"
    """int"""
    DOUBLE = "d"
    """float, NaN and infinities included"""
    BOOLEAN = "b"
    """bool"""
    DATETIME = "t"
    """int: ticks of 100 ns since the beginning of year 1"""
    GUID = "g"
    """bytes, 16 in the order in which they are written"""
    BINARY = "x"
    """bytes"""


Value = str | int | float | bool | bytes


class Properties(Part, frozen=True):
    """The properties of an entity without keys and timestamp, in the order in which they were
    sent."""

    names: tuple[str, ...] = ()
    types: str = ""
    """The letter of the type of each."""
    values: tuple[Any, ...] = ()
    """Each is a `Value`. The encoding distinguishes text from bytes, but a decoder with both types
    would not."""


class Entity(Record, frozen=True):
    """An entity under (table id, partition key, row key)."""

    stamp: int
    """The timestamp, in ticks since 1970, which is also the ETag."""
    properties: Properties


class PropertyIndexRow(Record, frozen=True):
    """A row of a property index, under (table id, number of the index, indexed value, partition
    key, row key)."""


# Tables


class TableName(Part, frozen=True):
    account: str
    name: str

    @property
    def key(self) -> tuple[str, str]:
        return self.account, self.name.lower()


class CreateTable(Command, frozen=True):
    table: TableName
    id: bytes


class DeleteTable(Command, frozen=True):
    table: TableName


class SetTableAccess(Command, frozen=True):
    table: TableName
    policies: tuple[SignedIdentifier, ...]


# Entities


class ChangeKind(KeyEnum):
    """The kind of a change of an entity."""

    INSERT = "insert"
    REPLACE = "replace"
    """The entity must exist."""
    MERGE = "merge"
    """The entity must exist."""
    INSERT_OR_REPLACE = "insert or replace"
    INSERT_OR_MERGE = "insert or merge"
    DELETE = "delete"


class EntityChange(Part, frozen=True):
    """A change of an entity."""

    change: ChangeKind
    keys: Keys
    properties: Properties = Properties()
    if_match: int | None = None
    """The stamp that the entity must have; None: any."""


class ChangeEntities(Command, frozen=True):
    """Apply all changes in order, or none."""

    table: TableName
    changes: tuple[EntityChange, ...]


class GetEntity(Command, frozen=True):
    table: TableName
    keys: Keys


class EntityResult(Result, frozen=True):
    keys: Keys
    entity: Entity


class KeyLimits(Part, frozen=True):
    """The keys that a caller may access, ends included; None is no limit."""

    start_partition: str | None = None
    start_row: str | None = None
    end_partition: str | None = None
    end_row: str | None = None

    def contains(self, keys: Keys) -> bool:
        """Returns whether keys are within the limits. They are ordered by partition, then by
        row."""
        if self.start_partition is not None:
            if keys.partition < self.start_partition:
                return False
            same = keys.partition == self.start_partition
            if same and self.start_row is not None and keys.row < self.start_row:
                return False
        if self.end_partition is not None:
            if keys.partition > self.end_partition:
                return False
            same = keys.partition == self.end_partition
            if same and self.end_row is not None and keys.row > self.end_row:
                return False
        return True


NO_KEY_LIMITS = KeyLimits()
