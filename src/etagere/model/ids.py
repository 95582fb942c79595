"""Identities: 16 bytes, ordered by the time they were drawn, never by their meaning.

They are drawn before an operation and travel in its command, because an operation may
be run again and must then do the same thing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

ID_BYTES = 16
_STOCKED = 256
"""Times that random bytes are drawn before the kernel is asked for more."""

_stock: Iterator[bytes] = iter(())


def new_id() -> bytes:
    """48 bits of milliseconds, then 80 random bits: neighbours in time are neighbours on disk."""
    return (time.time_ns() // 1_000_000).to_bytes(6, "big") + draw()[:10]


def draw() -> bytes:
    """16 random bytes, nobody's secret. To ask the kernel for each would cost more than most of
    what they name."""
    drawn = next(_stock, None)
    return drawn if drawn is not None else _restock()


def _restock() -> bytes:
    global _stock  # noqa: PLW0603
    many = os.urandom(ID_BYTES * _STOCKED)
    # An iterator, because threads can take from it without getting the same twice.
    stock = iter([many[at : at + ID_BYTES] for at in range(0, len(many), ID_BYTES)])
    drawn = next(stock)
    _stock = stock
    return drawn


def _forget_stock() -> None:
    global _stock  # noqa: PLW0603
    _stock = iter(())


# Parent and child must not draw the same.
os.register_at_fork(after_in_child=_forget_stock)
