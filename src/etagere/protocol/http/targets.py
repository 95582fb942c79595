"""Request targets (RFC 9112, section 3.2) and request lines."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_ABSOLUTE: Final = re.compile(
    rb"https?://(?P<authority>[^/?#@]+)(?P<path>/[^?#]*)?(?P<query>\?[^#]*)?", re.IGNORECASE
)


class OriginForm(NamedTuple):
    """A target as most clients send it, and the host it is sent to."""

    target: bytes
    host: bytes


def origin_form(target: bytes) -> OriginForm | None:
    """Splits a target in absolute form; returns None if it is not an HTTP URL."""
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        return None
    return OriginForm((found["path"] or b"/") + (found["query"] or b""), found["authority"])


class RequestLineScanner:
    """Detects two spaces in a row in request lines: the parser skips them, and a proxy in front of
    the server may have read the line differently.

    Each portion of bytes must end where a message may end, so that it is known whether it begins
    a message.
    """

    def __init__(self) -> None:
        self._in_line = False
        self._ends_with_space = False

    def has_two_spaces(self, data: bytes, *, begins_message: bool) -> bool:
        """Examines the next portion of the bytes before the body of a message."""
        if begins_message:
            self._in_line = True
            self._ends_with_space = False
            if data[0] in b"\r\n":
                # Empty lines before a request are skipped.
                data = data.lstrip(b"\r\n")
        elif not self._in_line:
            return False
        end = data.find(b"\n")
        if end >= 0:
            self._in_line = False
            return data.find(b"  ", 0, end) >= 0 or (self._ends_with_space and data[0] == _SPACE)
        if not data:
            return False
        found = b"  " in data or (self._ends_with_space and data[0] == _SPACE)
        self._ends_with_space = data[-1] == _SPACE
        return found


_SPACE: Final = ord(" ")
