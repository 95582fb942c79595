"""The access log: one line per response.

Lines are formatted here and written a few times a second. A call of the logging module, with a
system call in it, for each of them would cost as much as half of a small read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from etagere.protocol.http.messages import Request, Response

logger = logging.getLogger("etagere.access")

LINE: Final = "%(message)s"
"""The format of its handler: each line contains its own time."""
_FLUSH_SECONDS = 0.1
_LINES_MAX = 1_000


class AccessLog:
    """The access log of one front end. Lines that a killed process has not written are lost."""

    def __init__(self) -> None:
        self._second = 0
        self._prefix = ""
        self._lines: list[str] = []

    def add(self, request: Request, response: Response, seconds: float) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        now = int(time.time())
        if now != self._second:
            self._second = now
            self._prefix = time.strftime("%Y-%m-%d %H:%M:%S INFO etagere.access: ")
        path = request.target.partition(b"?")[0].decode("utf-8", "backslashreplace")
        if not self._lines:
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)
        self._lines.append(
            f"{self._prefix}{request.client} {request.method} {path} {response.status} "
            f"{1000 * seconds:.1f} ms {response.notes.get('request', '')}"
        )
        if len(self._lines) >= _LINES_MAX:
            self.flush()

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        if lines:
            logger.info("\n".join(lines))
