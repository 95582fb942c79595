"""The machine's clocks, behind an interface that tests can replace.

All times are integers in ticks of 100 ns, the resolution of the Azure services. Only engines read
a clock to decide something; `engine/timeline.py` has the kinds of time that they derive from it.
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
    """The clocks that an engine needs."""

    def wall(self) -> int:
        """Returns the wall clock in ticks since 1970. It may jump in both directions."""
        ...

    def elapsed(self) -> int:
        """Returns the ticks since the machine was booted, including suspended time. Never jumps."""
        ...

    def boot_id(self) -> str:
        """Returns the identifier of the boot that `elapsed` counts from."""
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
