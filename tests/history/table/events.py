"""Requests to entities and their outcomes.

Every change has a token that no other change has. An entity contains the token of the change that
made its version, and in each of its two properties the token of the change that wrote it last. So
a reader knows exactly which changes it saw.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from tests.history import events

ANY: Final = "*"
"""In place of an ETag: any."""
PROPERTIES: Final = ("A", "B")


class Verb(enum.Enum):
    INSERT = "insert"
    REPLACE = "replace"
    MERGE = "merge"
    INSERT_OR_REPLACE = "insert or replace"
    INSERT_OR_MERGE = "insert or merge"
    DELETE = "delete"
    GET = "get"
    GROUP = "group"


CONDITIONAL: Final = frozenset({Verb.REPLACE, Verb.MERGE, Verb.DELETE})
"""Changes of an existing entity, with an If-Match."""
MERGES: Final = frozenset({Verb.MERGE, Verb.INSERT_OR_MERGE})


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of one entity."""

    verb: Verb
    row: str
    token: str = ""
    properties: str = ""
    """The names of the properties that it writes."""
    if_match: str = ""


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """A read of an entity, a change, or a group of changes in one partition."""

    verb: Verb
    partition: str
    row: str = ""
    """The entity that is read."""
    changes: tuple[Change, ...] = ()


class Entity(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entity, by the tokens that it contains."""

    version: str
    properties: tuple[str, ...]
    """The tokens of all properties, empty for those that it does not have."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The operation succeeded."""

    etags: tuple[str, ...] = ()
    """The ETag of the entity that was read, or after each change; empty for deletes."""
    entity: Entity | None = None
    """The entity that was read."""


class Operation(events.Operation[Request, Done], frozen=True, tag="operation"):
    """An operation of the table service."""


History = events.History[Operation]
LOG: Final = events.EventLog(Operation, Request, Done)


def operations_by_partition(history: History) -> dict[str, list[Operation]]:
    """Returns the operations of each partition, by the time at which they began."""
    found: dict[str, list[Operation]] = {}
    for operation in sorted(history.operations, key=lambda each: each.began):
        found.setdefault(operation.request.partition, []).append(operation)
    return found
