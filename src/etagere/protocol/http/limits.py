"""Limits on what one client may consume."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of one connection: sizes of heads, timeouts, and minimum transfer rates."""

    target_bytes_max: int = 32 * 1024
    head_bytes_max: int = 64 * 1024
    headers_max: int = 256
    idle_seconds: float = 120.0
    """Between requests."""
    head_seconds: float = 30.0
    """From the first byte of a head to its end."""
    body_bytes_per_second_min: float = 1024.0
    """The rate at which a client must send a request body, or read a response, while the server
    waits for it."""
    behind_seconds_max: float = 60.0
    """How far a client may fall behind that rate; also how long it may send or read nothing."""
    held_memory_seconds_max: float = 60.0
    """While other requests need memory, a client must be fast enough to send or read within this
    time what it holds in memory."""
    wanted_memory_seconds_max: float = 3.0
    """How far a client may fall behind that rate."""
    discard_seconds_max: float = 60.0
    """For the rest of a request body after its response has been sent."""
    linger_seconds: float = 5.0
    """For a client that is still sending to read the last response on its connection."""
    discard_bytes_max: int = 256 << 20
    """Bytes of unwanted input that are read before the connection is closed."""
