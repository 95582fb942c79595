"""Tables and their entities: what is stored of them, and what can be asked of them.

The properties of an entity are three columns side by side: names, types and values. A scan reads
many entities to show few, and this is what takes the least to read.
"""

from __future__ import annotations

import enum
from typing import Any

from etagere.model.base import Command, Part, Record, Result
from etagere.model.service import SignedIdentifier


class Keys(Part, frozen=True, order=True):
    """Which entity of a table."""

    partition: str
    row: str


class PropertyIndex(Part, frozen=True):
    """Where the entities of a table are by the values of one property. Rows are kept from the
    moment on when this is stored; those of the entities before are made in steps."""

    number: int
    """Which index of the table, in the keys of its rows."""
    name: str
    built: Keys | None = None
    """The last entity whose row was made."""
    is_ready: bool = False
    """Whether there are rows of all."""
    created_at: int = 0
    """In ticks of the engine's time; 0 if that was not stored."""
    score: float = 0.0
    """How often queries used it; each use counts less as time goes by."""
    used_at: int = 0
    """When that was brought up to date."""


class Table(Record, frozen=True):
    """A table under (account, name in lower case)."""

    id: bytes
    name: str
    """With the case in which it was created."""
    policies: tuple[SignedIdentifier, ...] = ()
    indexes: tuple[PropertyIndex, ...] = ()
    indexes_made: int = 0
    """No number of an index below this is given to another."""


class DroppedIndex(Record, frozen=True):
    """An index under (table id, its number) whose rows are still to be removed."""


class DeletedTable(Record, frozen=True):
    """A table whose name is free again and whose entities are still to be removed."""


class Edm(enum.StrEnum):
    """The types of properties: the letter is what is stored, and what the value is in Python."""

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
    """All but the keys and the timestamp, in the order in which they came."""

    names: tuple[str, ...] = ()
    types: str = ""
    """A letter of `Edm` for each."""
    values: tuple[Any, ...] = ()
    """Each a `Value`: what is stored tells them apart, but not to a decoder that is told to
    expect both text and bytes."""


class Entity(Record, frozen=True):
    """An entity under (table id, partition key, row key)."""

    stamp: int
    """Its timestamp, in ticks since 1970, and its ETag."""
    properties: Properties


class PropertyIndexRow(Record, frozen=True):
    """That there is an entity, under (table id, number of the index, what is kept of the value,
    partition key, row key)."""


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


class ChangeKind(enum.Enum):
    """What is done to an entity."""

    INSERT = "insert"
    REPLACE = "replace"
    """It must be there."""
    MERGE = "merge"
    """It must be there."""
    INSERT_OR_REPLACE = "insert or replace"
    INSERT_OR_MERGE = "insert or merge"
    DELETE = "delete"


class EntityChange(Part, frozen=True):
    """One change of one entity."""

    change: ChangeKind
    keys: Keys
    properties: Properties = Properties()
    if_match: int | None = None
    """The stamp that it must have, if that is asked for."""


class ChangeEntities(Command, frozen=True):
    """All of these, in this order, or none."""

    table: TableName
    changes: tuple[EntityChange, ...]


class GetEntity(Command, frozen=True):
    table: TableName
    keys: Keys


class EntityResult(Result, frozen=True):
    keys: Keys
    entity: Entity


class KeyLimits(Part, frozen=True):
    """The entities that a caller may touch, both ends included; None is no bound."""

    start_partition: str | None = None
    start_row: str | None = None
    end_partition: str | None = None
    end_row: str | None = None

    def contains(self, keys: Keys) -> bool:
        """Keys are in the order of their partitions, and of their rows in one partition."""
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
