"""Contents that say what they are made of, so that a torn one is noticed."""

from __future__ import annotations

import hashlib
import random
import re
from typing import Final

SIZES: Final = (20, 3_000, 40_000)
"""Small ones lie in the server's ledger, larger ones beside it."""
_HEAD: Final = re.compile(rb"\[([\w-]+):(\d+)\]")


def part_of(token: str) -> bytes:
    """The bytes that a write with this token sends."""
    source = random.Random(token)
    size = source.choice(SIZES)
    return b"[%b:%d]" % (token.encode("ascii"), size) + source.randbytes(size)


def tokens_in(content: bytes) -> tuple[str, ...]:
    """The tokens of the parts, if it consists of whole ones, else a name that no token is."""
    tokens: list[str] = []
    at = 0
    while at < len(content):
        head = _HEAD.match(content, at)
        token = head[1].decode("ascii") if head else ""
        if not head or not content.startswith(part_of(token), at):
            return (f"damaged, SHA-256 {hashlib.sha256(content).hexdigest()}",)
        tokens.append(token)
        at += len(part_of(token))
    return tuple(tokens)
