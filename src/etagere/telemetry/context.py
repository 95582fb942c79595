"""The request that a task serves, for log lines."""

from __future__ import annotations

from contextvars import Context, ContextVar
from typing import Final

REQUEST_ID: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""The ID of the request, or the name of the job, that the current task works for; empty: neither.
Engines pass it on to the writer process."""
NO_REQUEST: Final = Context()
"""For timers that a request starts, but that do not work for it."""

REQUEST_ID_BYTES_MAX: Final = 255
