"""What the path of a request to the table service names.

    Tables                                      all tables
    Tables('People')                            one of them, as an object
    People, People()                            its entities
    People(PartitionKey='p',RowKey='r')         one of those
    $batch                                      several at once

A quote in a key is written twice, so that a key cannot be mistaken for what follows it.
"""

from __future__ import annotations

import enum
import re
from typing import Final

import msgspec

from etagere.model.base import KeyEnum
from etagere.model.tables import Keys


class AddressKind(KeyEnum):
    """The kind of resource in an address."""

    SERVICE = enum.auto()
    TABLES = enum.auto()
    TABLE = enum.auto()
    ENTITIES = enum.auto()
    ENTITY = enum.auto()
    GROUP = enum.auto()


class Address(msgspec.Struct, frozen=True, gc=False):
    kind: AddressKind
    table: str = ""
    keys: Keys | None = None


_TEXT = r"'((?:[^']|'')*)'"
_TABLE = re.compile(rf"Tables\({_TEXT}\)", re.DOTALL)
_ENTITIES = re.compile(r"([^()']+)(?:\(\s*\))?")
_ENTITY = re.compile(
    rf"([^()']+)\(\s*(?:PartitionKey\s*=\s*{_TEXT}\s*,\s*RowKey\s*=\s*{_TEXT}"
    rf"|RowKey\s*=\s*{_TEXT}\s*,\s*PartitionKey\s*=\s*{_TEXT})\s*\)",
    re.DOTALL,
)
_TABLES: Final = frozenset({"Tables", "Tables()"})


def parse_address(path: str) -> Address | None:
    """Parses the path below the account; returns None if it is invalid."""
    if not path:
        return Address(AddressKind.SERVICE)
    if path in _TABLES:
        return Address(AddressKind.TABLES)
    if path == "$batch":
        return Address(AddressKind.GROUP)
    # The most common form first: a pattern that does not match takes as long as one that does.
    if path.endswith("')") and (found := _ENTITY.fullmatch(path)) is not None:
        return _entity(found)
    if (found := _TABLE.fullmatch(path)) is not None:
        return Address(AddressKind.TABLE, _unquoted(found[1]))
    if (found := _ENTITIES.fullmatch(path)) is not None:
        return Address(AddressKind.ENTITIES, found[1])
    found = _ENTITY.fullmatch(path)
    return None if found is None else _entity(found)


def _entity(found: re.Match[str]) -> Address:
    table, partition, row, row_first, partition_second = found.groups()
    if partition is None:
        partition, row = partition_second, row_first
    return Address(AddressKind.ENTITY, table, Keys(_unquoted(partition), _unquoted(row)))


def _unquoted(written: str) -> str:
    return written.replace("''", "'")
