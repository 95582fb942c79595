"""Contents of files that contain their token, so that a torn content is noticed."""

from __future__ import annotations

import hashlib
import random
import re
from typing import Final

_HEAD: Final = re.compile(rb"\[([\w-]+)\]")


def content_of(token: str, length: int) -> bytes:
    """Returns the bytes of a token."""
    head = b"[%b]" % token.encode("ascii")
    return head + random.Random(token).randbytes(length - len(head))


def token_in(content: bytes) -> str:
    """Returns the token if these are exactly its bytes, or else a name that is not a token. Zeros
    have the empty one."""
    head = _HEAD.match(content)
    token = head[1].decode("ascii") if head else ""
    expected = content_of(token, len(content)) if token else bytes(len(content))
    if content == expected:
        return token
    return f"damaged, SHA-256 {hashlib.sha256(content).hexdigest()}"
