"""Ids: 16 bytes that sort by the time at which they were created.

They are created before an operation and passed in its command, because an operation may run again
and must then do the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

ID_BYTES = 16
_POOL_COUNT = 256
"""The number of random values that are read from the kernel at once."""

_pool: Iterator[bytes] = iter(())


def new_id() -> bytes:
    """Returns a new id: 48 bits of milliseconds, then 80 random bits. Ids of the same time are
    stored near each other."""
    return (time.time_ns() // 1_000_000).to_bytes(6, "big") + random_bytes()[:10]


def random_bytes() -> bytes:
    """Returns 16 random bytes, not for secrets. They are read from the kernel in bulk, because one
    system call each would cost more than most of their uses."""
    random = next(_pool, None)
    return random if random is not None else _refill()


def _refill() -> bytes:
    global _pool  # noqa: PLW0603
    many = os.urandom(ID_BYTES * _POOL_COUNT)
    # An iterator, because threads can share it without getting the same value twice.
    pool = iter([many[at : at + ID_BYTES] for at in range(0, len(many), ID_BYTES)])
    random = next(pool)
    _pool = pool
    return random


def _clear_pool() -> None:
    global _pool  # noqa: PLW0603
    _pool = iter(())


# Parent and child must not use the same random bytes.
os.register_at_fork(after_in_child=_clear_pool)
