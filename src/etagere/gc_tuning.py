"""Settings of the cycle collector for processes that serve requests."""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLDS: Final = (10_000, 50, 100)
"""New objects that are still alive before the youngest generation is collected, and collections of
each generation before the next."""


def tune_gc() -> None:
    """Tunes the cycle collector for a long-lived process that has finished starting.

    What exists now stays, so it is never looked at again. Requests make few cycles, but some make
    thousands of objects, which the default thresholds would have looked at again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
