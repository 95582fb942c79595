"""Texts that say which message they belong to, so that one that was changed is noticed.

A text has a token that no other has. That of an update names the message too, before a slash.
"""

from __future__ import annotations

import hashlib
import random
import re
from typing import Final

LENGTHS: Final = (0, 40, 3_000)
"""Short ones lie in the record of the message, long ones beside it."""
_LETTERS: Final = "abcdefghij é€<&>\"'"
_HEAD: Final = re.compile(r"\[([\w/-]+)\]")


def text_of(token: str) -> str:
    source = random.Random(token)
    return f"[{token}]" + "".join(source.choices(_LETTERS, k=source.choice(LENGTHS))) + "."


def token_in(text: str) -> str:
    """The token, if this is its text to the last letter, else a name that no token is."""
    head = _HEAD.match(text)
    if head and text == text_of(head[1]):
        return head[1]
    return f"damaged, SHA-256 {hashlib.sha256(text.encode()).hexdigest()}"


def message_of(token: str) -> str:
    """The token that the message was put with."""
    return token.partition("/")[0]
