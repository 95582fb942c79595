"""Identities: 16 bytes, ordered by the time they were drawn, never by their meaning.

They are drawn before an operation and travel in its command, because an operation may
be run again and must then do the same thing.
"""

from __future__ import annotations

import os
import time

ID_BYTES = 16


def new_id() -> bytes:
    """48 bits of milliseconds, then 80 random bits: neighbours in time are neighbours on disk."""
    return (time.time_ns() // 1_000_000).to_bytes(6, "big") + os.urandom(10)
