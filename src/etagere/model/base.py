"""Base classes of everything that is stored or sent.

All of them are encoded as MessagePack arrays, so the position of a field identifies it on disk: new
fields are only appended, and have a default. Immutable objects cannot form cycles, so the garbage
collector does not track them.
"""

from __future__ import annotations

import enum

import msgspec


def _first_version(_class_name: str) -> int:
    return 1


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A part of a record, a command or a result."""


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=_first_version):
    """A record of a collection.

    The tag is the version of the record and is stored with it. A change that appending a field
    cannot express needs a new class with `tag=2`; the old class stays, gets an `upgrade` method,
    and is listed in the collection's `older`.
    """


class Command(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The input of an operation: data only, so that it can be sent, logged and run again."""


class Result(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The output of an operation, where a record is not enough."""


class KeyEnum(enum.Enum):
    """An enumeration whose members are keys of tables that every request looks up. `Enum` hashes
    the names of members, which takes ten times as long."""

    __hash__ = object.__hash__
