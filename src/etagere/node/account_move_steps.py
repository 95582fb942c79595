"""The steps of the move of an account, as they are reported, and its result."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple


class Step(enum.StrEnum):
    """The steps that are reported, in this order."""

    BYTES_COPIED = "most bytes are copied"
    FROZEN = "the account is read-only"
    COPIED = "all data is copied"
    INCOMING = "the target has all data"
    MOVED = "the source no longer serves the account"
    SERVED = "the target serves the account"
    RECORDED = "the account map names the target"


Report = Callable[[Step], None]
"""Called after each step."""


class Moved(NamedTuple):
    """What a run of the move has copied; zeros if an earlier run had copied everything."""

    records: int = 0
    extents: int = 0
    extent_bytes: int = 0
    frozen_seconds: float = 0.0
    """How long the account could not be written."""
