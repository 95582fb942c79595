"""Key encoding: tuples to bytes that sort like the tuples.

A key is a tuple whose parts have the kinds that its shape declares:

    ID      16 bytes as they are
    UINT    8 bytes, big-endian
    TEXT    UTF-8 with 00 written as 00 FF, then a terminating 00
    BYTES   the same without the UTF-8

The encoding keeps the order of the tuples, and a prefix of a string is a prefix of the encoded
key, so ranges and prefixes of keys are ranges of bytes.

After a terminator no part may begin with FF, or it would read as an escape. Hence ids begin
below FF (they begin with a time), UINT ends at 2**63 - 1, and BYTES does not follow TEXT or BYTES.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise, takewhile
from typing import Any, NamedTuple

from etagere.model.ids import ID_BYTES

KEY_BYTES_MAX = 8192
UINT_MAX = 2**63 - 1

Key = tuple[Any, ...]


class KeyKind(enum.Enum):
    """The type of one part of a key."""

    ID = enum.auto()
    UINT = enum.auto()
    TEXT = enum.auto()
    BYTES = enum.auto()


ID, UINT, TEXT, BYTES = KeyKind.ID, KeyKind.UINT, KeyKind.TEXT, KeyKind.BYTES

_UINT_BYTES = 8
_FIXED_BYTES = {ID: ID_BYTES, UINT: _UINT_BYTES}
_STRUCT_CODES = {ID: f"{ID_BYTES}s", UINT: "Q"}
_ESCAPED_NUL = b"\x00\xff"


class Span(NamedTuple):
    """A half-open range of encoded keys."""

    start: bytes
    stop: bytes


class KeyShape:
    """The kinds of the parts of a key, and the encoding that follows from them.

    `pack` and `unpack_all` run for every record that is written or read. Most shapes are parts of
    fixed width, then perhaps one BYTES, then TEXTs. Keys of such a shape are encoded as a whole,
    unless there is a NUL to escape; all others part by part.
    """

    __slots__ = (
        "_count",
        "_first_text",
        "_fixed",
        "_fixed_count",
        "_ids",
        "_is_regular",
        "_packers",
        "_string_count",
        "_uints",
        "kinds",
        "pack",
    )

    def __init__(self, kinds: Sequence[KeyKind]) -> None:
        for first, second in pairwise(kinds):
            if first in (TEXT, BYTES) and second is BYTES:
                raise ValueError("BYTES cannot follow TEXT or BYTES in a key")
        self.kinds = tuple(kinds)
        self._count = len(kinds)
        self._packers = [_PACKERS[kind] for kind in kinds]
        fixed = tuple(takewhile(_STRUCT_CODES.__contains__, kinds))
        self._fixed = struct.Struct(">" + "".join([_STRUCT_CODES[kind] for kind in fixed]))
        self._fixed_count = len(fixed)
        # Where the ids are in the tuple and in the bytes, and where the numbers are in the bytes.
        offsets = [0, *accumulate([_FIXED_BYTES[kind] for kind in fixed])]
        self._ids = [(at, offsets[at]) for at, kind in enumerate(fixed) if kind is ID]
        self._uints = [offsets[at] for at, kind in enumerate(fixed) if kind is UINT]
        strings = self.kinds[len(fixed) :]
        self._string_count = len(strings)
        self._first_text = len(kinds) - len(strings) + (strings[:1] == (BYTES,))
        self._is_regular = set(self.kinds[self._first_text :]) <= {TEXT}
        self.pack: Callable[[Key], bytes] = self._packer()
        """Encodes a key. Raises ValueError or TypeError for what is not a key of this shape."""

    def _packer(self) -> Callable[[Key], bytes]:
        """Returns the fastest method for this shape."""
        if not self._string_count:
            return self._pack_fixed
        if self._is_regular:
            has_parent = self.kinds[: self._first_text] == (ID,)
            return self._pack_id_and_texts if has_parent else self._pack_regular
        return self._pack_parts

    def _pack_fixed(self, key: Key) -> bytes:
        """Packs ID and UINT parts, which cannot become too long."""
        try:
            packed = self._fixed.pack(*key)
        except struct.error as error:
            raise ValueError(f"not a key of {self._names()}: {error}") from None
        for at, offset in self._ids:
            if len(key[at]) != ID_BYTES or packed[offset] == 0xFF:
                raise ValueError(_BAD_ID)
        for offset in self._uints:
            if packed[offset] > 0x7F:
                raise ValueError(f"a number is larger than {UINT_MAX}")
        return packed

    def _pack_id_and_texts(self, key: Key) -> bytes:
        """Packs names within a parent, the shape of most lookups, without calling anything."""
        if len(key) != self._count:
            raise ValueError(self._wrong_count(key))
        parent = key[0]
        if len(parent) != ID_BYTES or parent[0] == 0xFF:
            raise ValueError(_BAD_ID)
        strings = ("\0".join(key[1:]) + "\0").encode()
        if strings.count(0) != self._string_count:
            return self._pack_parts(key)
        packed: bytes = parent + strings
        if len(packed) > KEY_BYTES_MAX:
            raise ValueError(_too_long(packed))
        return packed

    def _pack_regular(self, key: Key) -> bytes:
        """Packs parts of fixed width, perhaps one BYTES, and TEXTs."""
        if len(key) != self._count:
            raise ValueError(self._wrong_count(key))
        count, first_text = self._fixed_count, self._first_text
        strings = "\0".join((*key[first_text:], "")).encode()
        if first_text > count:
            strings = key[count] + b"\0" + strings
        if strings.count(0) != self._string_count:
            return self._pack_parts(key)
        packed = self._pack_fixed(key[:count]) + strings if count else strings
        if len(packed) > KEY_BYTES_MAX:
            raise ValueError(_too_long(packed))
        return packed

    def _pack_parts(self, key: Key) -> bytes:
        if len(key) != self._count:
            raise ValueError(self._wrong_count(key))
        packed = b"".join([pack(part) for pack, part in zip(self._packers, key, strict=True)])
        if len(packed) > KEY_BYTES_MAX:
            raise ValueError(_too_long(packed))
        return packed

    def unpack(self, packed: bytes) -> Key:
        """Decodes a key. The result for bytes that are not one is unspecified."""
        parts: list[Any] = []
        at = 0
        for kind in self.kinds:
            width = _FIXED_BYTES.get(kind)
            if width is not None:
                raw = packed[at : at + width]
                at += width
                parts.append(int.from_bytes(raw, "big") if kind is UINT else raw)
                continue
            end = packed.index(b"\x00", at)
            while packed[end + 1 : end + 2] == b"\xff":
                end = packed.index(b"\x00", end + 1)
            raw = packed[at:end].replace(_ESCAPED_NUL, b"\x00")
            at = end + 1
            parts.append(raw.decode() if kind is TEXT else raw)
        return tuple(parts)

    def unpack_all(self, keys: list[bytes]) -> list[Key]:
        """Decodes the keys of a listing."""
        width = self._fixed.size
        if not self._string_count:
            return list(map(self._fixed.unpack, keys))
        if self.kinds[-1] is not TEXT or not self._is_regular or _ESCAPED_NUL in b"".join(keys):
            return list(map(self.unpack, keys))
        unpack = self._fixed.unpack_from
        if self._first_text == self._fixed_count:
            if self.kinds == (ID, TEXT):
                return [(key[:width], key[width:-1].decode()) for key in keys]
            return [(*unpack(key), *key[width:-1].decode().split("\0")) for key in keys]
        unpacked: list[Key] = []
        for key in keys:
            value, texts = key[width:-1].split(b"\0", 1)
            unpacked.append((*unpack(key), value, *texts.decode().split("\0")))
        return unpacked

    def _names(self) -> str:
        return f"({', '.join([kind.name for kind in self.kinds])})"

    def _wrong_count(self, key: Key) -> str:
        return f"a key of {len(key)} parts where {self._names()} are needed"


_BAD_ID = "an id has 16 bytes, the first below FF"


def _too_long(packed: bytes) -> str:
    return f"a key of {len(packed)} bytes; {KEY_BYTES_MAX} is the limit"


def escape(data: bytes) -> bytes:
    return data.replace(b"\x00", _ESCAPED_NUL) if b"\x00" in data else data


def _pack_id(value: bytes) -> bytes:
    if len(value) != ID_BYTES or value[0] == 0xFF:
        raise ValueError(_BAD_ID)
    return value


def _pack_uint(value: int) -> bytes:
    if not 0 <= value <= UINT_MAX:
        raise ValueError(f"{value} is not between 0 and {UINT_MAX}")
    return value.to_bytes(_UINT_BYTES, "big")


def _pack_text(value: str) -> bytes:
    return escape(value.encode()) + b"\x00"


def _pack_bytes(value: bytes) -> bytes:
    return escape(value) + b"\x00"


_PACKERS: dict[KeyKind, Callable[[Any], bytes]] = {
    ID: _pack_id,
    UINT: _pack_uint,
    TEXT: _pack_text,
    BYTES: _pack_bytes,
}


def successor(prefix: bytes) -> bytes:
    """Returns the first byte string after all those that begin with a prefix."""
    trimmed = prefix.rstrip(b"\xff")
    if not trimmed:
        return b"\xff" * (KEY_BYTES_MAX + 1)
    return trimmed[:-1] + bytes([trimmed[-1] + 1])
