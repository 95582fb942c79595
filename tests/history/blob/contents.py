"""Contents that contain the tokens of their parts, so that a torn content is noticed."""

from __future__ import annotations

import hashlib
import random
import re
from functools import cache
from typing import Final

SIZES: Final = (20, 3_000, 40_000)
"""Small contents are stored in the ledger, larger ones beside it."""
_HEAD: Final = re.compile(rb"\[([\w-]+):(\d+)\]")


PAGE_BYTES: Final = 512


def part_of(token: str) -> bytes:
    """The bytes that a write with this token sends."""
    source = random.Random(token)
    size = source.choice(SIZES)
    return b"[%b:%d]" % (token.encode("ascii"), size) + source.randbytes(size)


@cache
def size_of(token: str) -> int:
    """Of its part."""
    return len(part_of(token))


def pages_of(token: str, first: int, count: int) -> bytes:
    """The bytes that a write with this token sends to these pages: each says which it is."""
    return b"".join(_page_of(token, number) for number in range(first, first + count))


def _page_of(token: str, number: int) -> bytes:
    head = b"[%b:%d]" % (token.encode("ascii"), number)
    return head + random.Random(head).randbytes(PAGE_BYTES - len(head))


def tokens_in(content: bytes) -> tuple[str, ...]:
    """The tokens of the parts, if it consists of whole ones, else a name that is not a token."""
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


def pages_in(content: bytes) -> tuple[str, ...]:
    """The token of each page, empty where there is none, else a name that is not a token."""
    return tuple(
        _token_of(content[at : at + PAGE_BYTES], at // PAGE_BYTES)
        for at in range(0, len(content), PAGE_BYTES)
    )


def _token_of(page: bytes, number: int) -> str:
    if page == bytes(PAGE_BYTES):
        return ""
    head = _HEAD.match(page)
    token = head[1].decode("ascii") if head else ""
    if not head or page != _page_of(token, number):
        return f"damaged, SHA-256 {hashlib.sha256(page).hexdigest()}"
    return token
