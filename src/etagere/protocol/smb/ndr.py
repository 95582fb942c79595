"""Marshalling of parameters of RPC calls in the NDR transfer syntax ([C706] chapter 14)."""

from __future__ import annotations

import struct
from typing import Final

from etagere.protocol.smb.rpc import BAD_STUB_DATA, RpcFault

_WORD: Final = struct.Struct("<I")
_ARRAY: Final = struct.Struct("<III")
STRING_LENGTH_MAX: Final = 4_096
"""The maximum length of a string in a request, in characters."""


class NdrReader:
    """Reads marshalled parameters."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def word(self) -> int:
        self._align()
        if self._at + _WORD.size > len(self._data):
            raise RpcFault(BAD_STUB_DATA)
        (value,) = _WORD.unpack_from(self._data, self._at)
        self._at += _WORD.size
        return int(value)

    def pointer(self) -> bool:
        """Reads a unique pointer; returns whether it refers to something."""
        return self.word() != 0

    def string(self) -> str:
        """Reads a conformant and varying string of UTF-16, with a null character at its end."""
        maximum, offset, count = self.word(), self.word(), self.word()
        end = self._at + 2 * count
        if offset or count > min(maximum, STRING_LENGTH_MAX) or end > len(self._data):
            raise RpcFault(BAD_STUB_DATA)
        text = str(self._data[self._at : end], "utf-16-le", "replace")
        self._at = end
        return text.rstrip("\0")

    def _align(self) -> None:
        self._at += -self._at % _WORD.size


class NdrWriter:
    """Marshals results."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._referents = 0

    def word(self, value: int) -> None:
        self._data += _WORD.pack(value)

    def pointer(self, is_null: bool = False) -> None:
        """Writes a unique pointer to something that follows later."""
        if is_null:
            self.word(0)
            return
        self._referents += 1
        self.word(0x0002_0000 + 4 * self._referents)

    def string(self, text: str) -> None:
        encoded = (text + "\0").encode("utf-16-le")
        count = len(encoded) // 2
        self._data += _ARRAY.pack(count, 0, count)
        self._data += encoded
        self._data += bytes(-len(encoded) % _WORD.size)

    def getvalue(self) -> bytes:
        return bytes(self._data)
