"""MD4 ([RFC 1320]), which NTLM hashes passwords with and OpenSSL 3 no longer offers."""

from __future__ import annotations

import struct
from typing import Final

_INITIAL_STATE: Final = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)
_BLOCK: Final = struct.Struct("<16I")
_STATE: Final = struct.Struct("<4I")
_BLOCK_BYTES: Final = 64
_LENGTH_BYTES: Final = 8
_WORD: Final = 0xFFFF_FFFF

# Each round: the constant that it adds, the order of the words, and the rotations.
_ROUND_1: Final = (0x00000000, tuple(range(16)), (3, 7, 11, 19))
_ROUND_2: Final = (
    0x5A827999,
    (0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
    (3, 5, 9, 13),
)
_ROUND_3: Final = (
    0x6ED9EBA1,
    (0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15),
    (3, 9, 11, 15),
)


def md4(message: bytes) -> bytes:
    """Returns the digest of a message."""
    padding = b"\x80" + bytes(-(len(message) + 1 + _LENGTH_BYTES) % _BLOCK_BYTES)
    padded = message + padding + struct.pack("<Q", 8 * len(message))
    state = _INITIAL_STATE
    for words in _BLOCK.iter_unpack(padded):
        state = _compress(state, words)
    return _STATE.pack(*state)


def _compress(
    state: tuple[int, int, int, int], words: tuple[int, ...]
) -> tuple[int, int, int, int]:
    a, b, c, d = state
    added, order, rotations = _ROUND_1
    for step, word in enumerate(order):
        mixed = a + (b & c | ~b & d) + words[word] + added
        a, b, c, d = d, _rotate(mixed, rotations[step & 3]), b, c
    added, order, rotations = _ROUND_2
    for step, word in enumerate(order):
        mixed = a + (b & c | b & d | c & d) + words[word] + added
        a, b, c, d = d, _rotate(mixed, rotations[step & 3]), b, c
    added, order, rotations = _ROUND_3
    for step, word in enumerate(order):
        mixed = a + (b ^ c ^ d) + words[word] + added
        a, b, c, d = d, _rotate(mixed, rotations[step & 3]), b, c
    return (
        state[0] + a & _WORD,
        state[1] + b & _WORD,
        state[2] + c & _WORD,
        state[3] + d & _WORD,
    )


def _rotate(value: int, bits: int) -> int:
    value &= _WORD
    return (value << bits | value >> (32 - bits)) & _WORD
