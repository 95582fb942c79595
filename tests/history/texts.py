"""Texts that contain their token, so that a damaged text is noticed."""

from __future__ import annotations

import hashlib
import random
import re
from typing import Final

LENGTHS: Final = (0, 40, 3_000)
"""Short texts are stored in the record itself, long ones beside it."""
_LETTERS: Final = "abcdefghij é€<&>\"'"
_HEAD: Final = re.compile(r"\[([\w/-]+)\]")


def text_of(token: str) -> str:
    """Returns the text of a token."""
    source = random.Random(token)
    return f"[{token}]" + "".join(source.choices(_LETTERS, k=source.choice(LENGTHS))) + "."


def token_in(text: str) -> str:
    """Returns the token if this is exactly its text, else a name that is not a token."""
    head = _HEAD.match(text)
    if head and text == text_of(head[1]):
        return head[1]
    return f"damaged, SHA-256 {hashlib.sha256(text.encode()).hexdigest()}"
