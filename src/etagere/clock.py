"""Where time comes from: the machine's clocks, behind an interface that tests can replace.

All times are integers in ticks of 100 ns, the resolution of the service we follow.
Nothing but an engine reads a clock to decide something; see `engine/timeline.py`
for the two kinds of time it makes of it.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Protocol

TICKS_PER_SECOND = 10_000_000
TICKS_PER_MILLISECOND = 10_000
_NANOSECONDS_PER_TICK = 100


class Clock(Protocol):
    """What an engine needs to know of the machine's clocks."""

    def wall(self) -> int:
        """Ticks since 1970 as the machine believes them now. May jump either way."""
        ...

    def elapsed(self) -> int:
        """Ticks since the machine was booted, time asleep included. Never jumps."""
        ...

    def boot_id(self) -> str:
        """Names the boot that `elapsed` counts from."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def wall(self) -> int:
        return time.time_ns() // _NANOSECONDS_PER_TICK

    def elapsed(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _NANOSECONDS_PER_TICK

    def boot_id(self) -> str:
        return _boot_id()


@cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
