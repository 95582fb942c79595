"""The request that a task serves, for log lines."""

from __future__ import annotations

from contextvars import Context, ContextVar
from typing import Final

REQUEST_ID: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""The ID of the request, or the name of the job, that the current task works for; empty: neither.
Engines pass it on to the writer process."""


def no_request() -> Context:
    """Returns the context for a timer that a request starts, but that does not work for it."""
    return Context()
