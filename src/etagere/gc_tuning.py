"""Settings of the cycle collector for processes that serve requests."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

_THRESHOLDS: Final = (10_000, 10, 500)
"""New objects that are still alive before the youngest generation is collected, and collections of
each generation before the next. Each object is examined once in the second generation, however
often that is collected; 100,000 objects take some 10 ms, during which no request is served."""


@contextlib.contextmanager
def paused_gc() -> Iterator[None]:
    """Pauses the cycle collector while modules are imported: they make many objects and hardly any
    garbage, and examining the objects again and again takes a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def freeze_before_fork() -> None:
    """Exempts what exists now from collection, in this process and in those forked from it. The
    collector of a child would examine, and so copy, all that the processes share."""
    gc.freeze()


def tune_gc() -> None:
    """Tunes the cycle collector for a long-lived process that has finished starting.

    What exists now stays, so it is never looked at again. Requests make few cycles, but some make
    thousands of objects, which the default thresholds would have looked at again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
