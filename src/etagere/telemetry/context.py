"""The request that a task serves, and its account."""

from __future__ import annotations

from contextvars import Context, ContextVar
from typing import Final

REQUEST_ID: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""The ID of the request, or the name of the job, that the current task works for; empty: neither.
Engines pass it on to the writer process."""

ACCOUNT: Final[ContextVar[str]] = ContextVar("account", default="")
"""The account of the request that the current task works for; empty: none. If accounts may move to
another cell, the engine passes it on to the writer process, which refuses to write to an account
that is moving. Not set by jobs, which also work while an account moves."""


CLIENT: Final[ContextVar[str]] = ContextVar("client", default="")
"""The address of the client whose request the current task works for; empty: none. Reads that wait
for a thread take turns by client."""


def no_request() -> Context:
    """Returns the context for a timer or a task that a request starts, but that does not work for
    it."""
    return Context()
