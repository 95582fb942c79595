"""Ordered, typed collections: the tables of the ledger, and how their records are encoded."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar, Union, cast

import msgspec

from etagere.engine.keys import (
    BYTES,
    ID,
    TEXT,
    UINT,
    UINT_MAX,
    KeyKind,
    KeyShape,
    Span,
    escape,
    successor,
)
from etagere.model.base import Record

__all__ = [
    "BYTES",
    "COLLECTIONS",
    "ENCODE",
    "ID",
    "SCHEMA",
    "TEXT",
    "UINT",
    "UINT_MAX",
    "Collection",
    "K",
    "KeyKind",
    "Layout",
    "R",
    "RecordKey",
    "Span",
    "total_order",
]

SCHEMA = 2
"""The version of the database schema. A program refuses databases with a newer one."""

K = TypeVar("K", bound=tuple[Any, ...])
R = TypeVar("R", bound=Record)


class Layout(enum.Enum):
    """The size of the records, for engines that store small and large rows differently."""

    SMALL = enum.auto()
    LARGE = enum.auto()


class Collection(Generic[K, R]):
    """An ordered set of records of one type under keys of one shape.

    Collections are defined once, at import; engines create a table for each.
    """

    __slots__ = (
        "_prefix_shapes",
        "decode",
        "kinds",
        "layout",
        "name",
        "pack",
        "record",
        "unpack",
        "unpack_all",
    )

    def __init__(
        self,
        name: str,
        record: type[R],
        key: Sequence[KeyKind],
        *,
        layout: Layout = Layout.SMALL,
        older: tuple[type[Record], ...] = (),
    ) -> None:
        if name in COLLECTIONS:
            raise ValueError(f"two collections are called {name}")
        if not name.isidentifier():
            raise ValueError(f"{name!r} cannot name a collection")
        self.name = name
        self.record = record
        self.kinds = tuple(key)
        self.layout = layout
        shape = KeyShape(key)
        self.pack: Callable[[K], bytes] = shape.pack
        self.unpack = cast("Callable[[bytes], K]", shape.unpack)
        self.unpack_all = cast("Callable[[list[bytes]], list[K]]", shape.unpack_all)
        self._prefix_shapes = [KeyShape(key[:count]) for count in range(len(key) + 1)]
        decode = msgspec.msgpack.Decoder(Union[(record, *older)]).decode
        self.decode: Callable[[bytes], R] = self._upgrading(decode) if older else decode
        COLLECTIONS[name] = self

    def __repr__(self) -> str:
        return f"<collection {self.name}>"

    def encode(self, record: R) -> bytes:
        return ENCODE(record)

    def _upgrading(self, decode: Callable[[bytes], Any]) -> Callable[[bytes], R]:
        def decode_any(value: bytes) -> R:
            record = decode(value)
            while type(record) is not self.record:
                record = record.upgrade()
            return record

        return decode_any

    def all(self) -> Span:
        """Returns the span of all keys."""
        return self.under(())

    def under(self, prefix: tuple[Any, ...], text: str = "") -> Span:
        """Returns the span of the keys that begin with these parts and, if `text` is given, whose
        next part begins with it."""
        packed = self._prefix_shapes[len(prefix)].pack(prefix)
        if text:
            packed += escape(text.encode())
        elif prefix and self.kinds[len(prefix) - 1] in (TEXT, BYTES):
            # FF follows the terminator only where it is an escape, in a longer part.
            return Span(packed, packed + b"\xff")
        return Span(packed, successor(packed))

    def after(self, span: Span, key: K) -> Span:
        """Returns the part of a span after `key`."""
        return Span(max(span.start, self.pack(key) + b"\x00"), span.stop)

    def starting(self, span: Span, key: K) -> Span:
        """Returns the part of a span from `key` on."""
        return Span(max(span.start, self.pack(key)), span.stop)


RecordKey = tuple[Collection[Any, Any], bytes]
"""What identifies a record in the ledger: its collection, and its encoded key there."""

COLLECTIONS: dict[str, Collection[Any, Any]] = {}
ENCODE: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode


def total_order(keys: Iterable[K], collection: Collection[K, Any]) -> list[K]:
    """Returns keys in the order in which every engine stores and locks them."""
    return sorted(keys, key=collection.pack)
