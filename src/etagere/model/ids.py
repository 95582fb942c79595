"""Identities: 16 bytes, ordered by the time they were random, never by their meaning.

They are random before an operation and travel in its command, because an operation may
be run again and must then do the same thing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

ID_BYTES = 16
_POOL_COUNT = 256
"""Times that random bytes are random before the kernel is asked for more."""

_pool: Iterator[bytes] = iter(())


def new_id() -> bytes:
    """48 bits of milliseconds, then 80 random bits: neighbours in time are neighbours on disk."""
    return (time.time_ns() // 1_000_000).to_bytes(6, "big") + random_bytes()[:10]


def random_bytes() -> bytes:
    """16 random bytes, nobody's secret. To ask the kernel for each would cost more than most of
    what they name."""
    random = next(_pool, None)
    return random if random is not None else _refill()


def _refill() -> bytes:
    global _pool  # noqa: PLW0603
    many = os.urandom(ID_BYTES * _POOL_COUNT)
    # An iterator, because threads can take from it without getting the same twice.
    pool = iter([many[at : at + ID_BYTES] for at in range(0, len(many), ID_BYTES)])
    random = next(pool)
    _pool = pool
    return random


def _clear_pool() -> None:
    global _pool  # noqa: PLW0603
    _pool = iter(())


# Parent and child must not random_bytes the same.
os.register_at_fork(after_in_child=_clear_pool)
