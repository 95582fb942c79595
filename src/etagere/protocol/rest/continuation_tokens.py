"""Continuation tokens with a name or key, in the form of the service: `1!<length>!<base64>`.

The length is that of the base64 text, whose padding is written as `-`.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

_VERSION: Final = "1"


def format_token(text: str) -> str:
    encoded = base64.b64encode(text.encode()).decode().replace("=", "-")
    return f"{_VERSION}!{len(encoded)}!{encoded}"


def parse_token(written: str) -> str | None:
    """Returns the text in a token; None if it is not a token."""
    version, _, rest = written.partition("!")
    length, _, encoded = rest.partition("!")
    if version != _VERSION or length != str(len(encoded)):
        return None
    # A client may have put the token into its query as it was, where a plus is a space.
    standard = encoded.replace("-", "=").replace(" ", "+")
    try:
        return base64.b64decode(standard, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
