"""What a request asks of the state of what it is about.

`rules/conditions.py` says what it means.
"""

from __future__ import annotations

from typing import Final

from etagere.model.base import Part

ETags = tuple[str, ...]
"""As they are sent: quoted, strong."""
ANY: Final[ETags] = ("*",)
"""No ETag of a request can be this, since theirs have quotes."""


class Conditions(Part, frozen=True):
    """What a request asks of the state of what it is about. Absent headers ask nothing."""

    if_match: ETags | None = None
    if_none_match: ETags | None = None
    if_modified_since: int | None = None
    """Seconds since 1970, as is the next."""
    if_unmodified_since: int | None = None
    if_tags: str | None = None
    """What a blob's tags must be like, as it was written."""


NO_CONDITIONS: Final = Conditions()
