"""Conditions of requests; `rules/conditions.py` evaluates them."""

from __future__ import annotations

from typing import Final

from etagere.model.base import Part

ETags = tuple[str, ...]
"""In the form in which they are sent: quoted and strong."""
ANY: Final[ETags] = ("*",)
"""The value of `*`. No ETag equals it, since those have quotes."""


class Conditions(Part, frozen=True):
    """The conditions of a request on the state of its resource. None: the header is absent."""

    if_match: ETags | None = None
    if_none_match: ETags | None = None
    if_modified_since: int | None = None
    """In seconds since 1970, like the next field."""
    if_unmodified_since: int | None = None
    if_tags: str | None = None
    """The condition on the blob's tags, as it was sent."""


NO_CONDITIONS: Final = Conditions()
