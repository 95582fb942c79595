"""The bases of everything that is stored or sent.

All of them are encoded as MessagePack arrays, so a field's place is its name on disk:
fields are only ever appended, and an appended field has a default. Nothing immutable can
refer to itself, so the cycle collector is spared looking at them.
"""

from __future__ import annotations

import msgspec


def _first_version(_class_name: str) -> int:
    return 1


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A piece of a record, a command or a result."""


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=_first_version):
    """What a collection stores.

    The tag is the record's version and is written with it. A change that appending a
    field cannot express makes a new class with `tag=2`; the old one stays, gains an
    `upgrade` method, and is named in its collection's `older`.
    """


class Command(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an operation is asked: data only, so that it can be sent, logged and run again."""


class Result(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an operation answers, where a record does not say it all."""
