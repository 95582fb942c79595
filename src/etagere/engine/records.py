"""Ordered, typed collections: how keys become bytes and records become values.

A key is a tuple. Its encoding keeps the order of the tuples, and a string's prefix is a
prefix of the key, so ranges and prefixes of keys are ranges of bytes:

    ID      16 bytes as they are
    UINT    8 bytes, big-endian
    TEXT    UTF-8 with 00 written as 00 FF, then a terminating 00
    BYTES   the same without the UTF-8

After a terminator no part may begin with FF, or it would read as an escape. Hence ids
begin below FF (they begin with a time), UINT ends at 2**63 - 1, and BYTES does not
follow TEXT or BYTES.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar, Union, cast

import msgspec

from etagere.model.base import Record
from etagere.model.ids import ID_BYTES

SCHEMA = 2
"""One number for the whole database; a binary refuses a database with a newer one."""

KEY_BYTES_MAX = 8192
UINT_MAX = 2**63 - 1

K = TypeVar("K", bound=tuple[Any, ...])
R = TypeVar("R", bound=Record)


class Kind(enum.Enum):
    """What a part of a key is."""

    ID = enum.auto()
    UINT = enum.auto()
    TEXT = enum.auto()
    BYTES = enum.auto()


ID, UINT, TEXT, BYTES = Kind.ID, Kind.UINT, Kind.TEXT, Kind.BYTES


class Layout(enum.Enum):
    """How large the values are; engines that store small and large rows differently ask."""

    SMALL = enum.auto()
    LARGE = enum.auto()


class Span(NamedTuple):
    """A half-open range of encoded keys."""

    start: bytes
    stop: bytes


class Collection(Generic[K, R]):
    """An ordered set of records of one type under keys of one shape.

    Collections are defined once, at import; engines create a table for each.
    """

    __slots__ = (
        "_pack_prefix",
        "_unpack_plain",
        "decode",
        "kinds",
        "layout",
        "name",
        "pack",
        "record",
        "unpack",
    )

    def __init__(
        self,
        name: str,
        record: type[R],
        key: Sequence[Kind],
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
        self.pack: Callable[[K], bytes] = _packer(self.kinds)
        self.unpack: Callable[[bytes], K] = cast("Callable[[bytes], K]", _unpacker(self.kinds))
        self._unpack_plain = _UNPACK_PLAIN.get(self.kinds)
        self._pack_prefix = [_packer(self.kinds[:count]) for count in range(len(key) + 1)]
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

    def unpack_all(self, keys: list[bytes]) -> list[K]:
        escapes = self.kinds != _NUMBERED
        if self._unpack_plain is None or (escapes and _ESCAPED_NUL in b"".join(keys)):
            unpack = self.unpack
            return [unpack(key) for key in keys]
        return cast("list[K]", self._unpack_plain(keys))

    def all(self) -> Span:
        """Every key there can be."""
        return self.under(())

    def under(self, prefix: tuple[Any, ...], text: str = "") -> Span:
        """The keys that begin with these parts and, if given, whose next part begins with text."""
        packed = self._pack_prefix[len(prefix)](prefix)
        if text:
            packed += _escape(text.encode())
        elif prefix and self.kinds[len(prefix) - 1] in (TEXT, BYTES):
            # After the terminator FF comes only where it was an escape, in a longer part.
            return Span(packed, packed + b"\xff")
        return Span(packed, _successor(packed))

    def after(self, span: Span, key: K) -> Span:
        """The rest of a span once `key` has been seen."""
        return Span(max(span.start, self.pack(key) + b"\x00"), span.stop)

    def starting(self, span: Span, key: K) -> Span:
        """The part of a span from `key` on."""
        return Span(max(span.start, self.pack(key)), span.stop)


_NAMED = (ID, TEXT)
_TWICE_NAMED = (ID, TEXT, TEXT)
_INDEXED = (ID, UINT, BYTES, TEXT, TEXT)
_NUMBERED = (ID, UINT)

COLLECTIONS: dict[str, Collection[Any, Any]] = {}
ENCODE: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode


def _successor(prefix: bytes) -> bytes:
    """The first byte string after all that begin with prefix."""
    trimmed = prefix.rstrip(b"\xff")
    if not trimmed:
        return b"\xff" * (KEY_BYTES_MAX + 1)
    return trimmed[:-1] + bytes([trimmed[-1] + 1])


_ESCAPED_NUL = b"\x00\xff"


def _escape(data: bytes) -> bytes:
    return data.replace(b"\x00", _ESCAPED_NUL) if b"\x00" in data else data


def _pack_id(value: bytes) -> bytes:
    if len(value) != ID_BYTES or value[0] == 0xFF:
        raise ValueError("an id has 16 bytes, the first below FF")
    return value


def _pack_uint(value: int) -> bytes:
    if not 0 <= value <= UINT_MAX:
        raise ValueError(f"{value} is not between 0 and {UINT_MAX}")
    return value.to_bytes(8, "big")


def _pack_text(value: str) -> bytes:
    return _escape(value.encode()) + b"\x00"


def _pack_bytes(value: bytes) -> bytes:
    return _escape(value) + b"\x00"


_PACKERS: dict[Kind, Callable[[Any], bytes]] = {
    ID: _pack_id,
    UINT: _pack_uint,
    TEXT: _pack_text,
    BYTES: _pack_bytes,
}
_FIXED_BYTES = {ID: ID_BYTES, UINT: 8}


def _packer(kinds: tuple[Kind, ...]) -> Callable[[Any], bytes]:
    for first, second in pairwise(kinds):
        if first in (TEXT, BYTES) and second is BYTES:
            raise ValueError("BYTES cannot follow TEXT or BYTES in a key")
    packers = [_PACKERS[kind] for kind in kinds]
    arity = len(packers)

    def pack(key: tuple[Any, ...]) -> bytes:
        if len(key) != arity:
            raise ValueError(f"a key of {len(key)} parts where {arity} are needed")
        packed = b"".join([part(value) for part, value in zip(packers, key, strict=True)])
        if len(packed) > KEY_BYTES_MAX:
            raise ValueError(f"a key of {len(packed)} bytes; {KEY_BYTES_MAX} is the limit")
        return packed

    if kinds == _NAMED:
        # The shape of most lookups: no calls.
        def pack_named(key: tuple[Any, ...]) -> bytes:
            parent, name = key
            if len(parent) != ID_BYTES or parent[0] == 0xFF:
                raise ValueError("an id has 16 bytes, the first below FF")
            text = name.encode()
            if b"\x00" in text:
                text = text.replace(b"\x00", b"\x00\xff")
            packed: bytes = parent + text + b"\x00"
            if len(packed) > KEY_BYTES_MAX:
                raise ValueError(f"a key of {len(packed)} bytes; {KEY_BYTES_MAX} is the limit")
            return packed

        return pack_named
    if kinds == _TWICE_NAMED:

        def pack_twice_named(key: tuple[Any, ...]) -> bytes:
            parent, first, second = key
            if len(parent) != ID_BYTES or parent[0] == 0xFF:
                raise ValueError("an id has 16 bytes, the first below FF")
            if "\0" in first or "\0" in second:
                return pack(key)
            packed: bytes = parent + f"{first}\0{second}\0".encode()
            if len(packed) > KEY_BYTES_MAX:
                raise ValueError(f"a key of {len(packed)} bytes; {KEY_BYTES_MAX} is the limit")
            return packed

        return pack_twice_named
    if kinds == _INDEXED:

        def pack_indexed(key: tuple[Any, ...]) -> bytes:
            parent, number, value, first, second = key
            names = f"{first}\0{second}\0".encode()
            if b"\0" in value or names.count(b"\0") > 2:
                return pack(key)
            packed: bytes = _pack_id(parent) + _pack_uint(number) + value + b"\0" + names
            if len(packed) > KEY_BYTES_MAX:
                raise ValueError(f"a key of {len(packed)} bytes; {KEY_BYTES_MAX} is the limit")
            return packed

        return pack_indexed
    if arity == 1:
        (only,) = packers

        def pack_one(key: tuple[Any, ...]) -> bytes:
            (value,) = key
            packed = only(value)
            if len(packed) > KEY_BYTES_MAX:
                raise ValueError(f"a key of {len(packed)} bytes; {KEY_BYTES_MAX} is the limit")
            return packed

        return pack_one
    if arity == 2:
        head, tail = packers

        def pack_two(key: tuple[Any, ...]) -> bytes:
            first, second = key
            packed = head(first) + tail(second)
            if len(packed) > KEY_BYTES_MAX:
                raise ValueError(f"a key of {len(packed)} bytes; {KEY_BYTES_MAX} is the limit")
            return packed

        return pack_two
    if arity == 3 and set(kinds) <= {ID, UINT}:
        # The shape of orders by a moment: short enough whatever is in them.
        one, two, three = packers

        def pack_three(key: tuple[Any, ...]) -> bytes:
            first, second, third = key
            return one(first) + two(second) + three(third)

        return pack_three
    return pack


def _unpacker(kinds: tuple[Kind, ...]) -> Callable[[bytes], tuple[Any, ...]]:
    if kinds == (ID,):
        return lambda packed: (packed,)

    def unpack(packed: bytes) -> tuple[Any, ...]:
        parts: list[Any] = []
        at = 0
        for kind in kinds:
            width = _FIXED_BYTES.get(kind)
            if width is not None:
                raw = packed[at : at + width]
                at += width
                parts.append(int.from_bytes(raw, "big") if kind is UINT else raw)
                continue
            end = packed.index(b"\x00", at)
            while packed[end + 1 : end + 2] == b"\xff":
                end = packed.index(b"\x00", end + 1)
            raw = packed[at:end].replace(b"\x00\xff", b"\x00")
            at = end + 1
            parts.append(raw.decode() if kind is TEXT else raw)
        return tuple(parts)

    return unpack


# The shapes of long listings where nothing is escaped: no calls, nothing looked for in each.


def _unpack_named(keys: list[bytes]) -> list[Any]:
    return [(key[:ID_BYTES], key[ID_BYTES:-1].decode()) for key in keys]


def _unpack_twice_named(keys: list[bytes]) -> list[Any]:
    return [(key[:ID_BYTES], *key[ID_BYTES:-1].decode().split("\0")) for key in keys]


def _unpack_numbered(keys: list[bytes]) -> list[Any]:
    from_bytes = int.from_bytes
    return [(key[:ID_BYTES], from_bytes(key[ID_BYTES:], "big")) for key in keys]


def _unpack_indexed(keys: list[bytes]) -> list[Any]:
    at = ID_BYTES + _FIXED_BYTES[UINT]
    from_bytes = int.from_bytes
    unpacked = []
    for key in keys:
        value, first, second = key[at:-1].split(b"\0")
        number = from_bytes(key[ID_BYTES:at], "big")
        unpacked.append((key[:ID_BYTES], number, value, first.decode(), second.decode()))
    return unpacked


_UNPACK_PLAIN: dict[tuple[Kind, ...], Callable[[list[bytes]], list[Any]]] = {
    _NAMED: _unpack_named,
    _TWICE_NAMED: _unpack_twice_named,
    _NUMBERED: _unpack_numbered,
    _INDEXED: _unpack_indexed,
}


def total_order(keys: Iterable[K], collection: Collection[K, Any]) -> list[K]:
    """Keys in the order in which every engine stores and locks them."""
    return sorted(keys, key=collection.pack)
