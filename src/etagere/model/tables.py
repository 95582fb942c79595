"""Tables and their entities: what is stored of them, and what can be asked of them.

The properties of an entity are three columns side by side: names, types and values. A scan reads
many entities to show few, and this is what takes the least to read.
"""

from __future__ import annotations

import enum

from etagere.model.base import Command, Part, Record, Result
from etagere.model.service import SignedIdentifier


class Table(Record, frozen=True):
    """A table under (account, name in lower case)."""

    id: bytes
    name: str
    """With the case in which it was created."""
    policies: tuple[SignedIdentifier, ...] = ()


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
    values: tuple[Value, ...] = ()


class Entity(Record, frozen=True):
    """An entity under (table id, partition key, row key)."""

    stamp: int
    """Its timestamp, in ticks since 1970, and its ETag."""
    properties: Properties


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


class Keys(Part, frozen=True, order=True):
    """Which entity of a table."""

    partition: str
    row: str


class Change(enum.Enum):
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

    change: Change
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


class ShownEntity(Result, frozen=True):
    keys: Keys
    entity: Entity
