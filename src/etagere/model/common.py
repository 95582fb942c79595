"""Types that several services share."""

from __future__ import annotations

from etagere.model.base import Command, Result

Metadata = tuple[tuple[str, str], ...]
"""Names, with their case, and values, in the order in which they were sent."""


class TimedResult(Result, frozen=True):
    """A result with the time it was read at, which determines the state of leases."""

    now: int


class ListNamed(Command, frozen=True):
    """List the containers, queues or shares of an account in the order of their names."""

    account: str
    limit: int
    prefix: str = ""
    marker: str = ""
    """The first name of the page."""
