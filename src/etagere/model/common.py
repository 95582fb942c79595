"""Types that several services share."""

from __future__ import annotations

from etagere.model.base import Command, Part, Result

Metadata = tuple[tuple[str, str], ...]
"""Names, with their case, and values, in the order in which they were sent."""


class ContentHeaders(Part, frozen=True):
    """The response headers of a download of a blob or file, as the client set them."""

    content_type: str = "application/octet-stream"
    content_encoding: str = ""
    content_language: str = ""
    content_disposition: str = ""
    cache_control: str = ""
    content_md5: bytes | None = None


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
