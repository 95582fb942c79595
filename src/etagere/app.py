"""The composition root: the only module that knows how the parts are put together."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from etagere import directories
from etagere.clock import Clock, SystemClock
from etagere.config import Config
from etagere.engine import ledger, reserve
from etagere.engine.writer import listen, writer_main
from etagere.processes import ChildMain, Supervisor

LOCK_NAME = "lock"
# Children of a server that was killed let go of the directory a moment after it.
_CLAIM_SECONDS_MAX = 5.0


class DirectoryInUse(Exception):
    """Another process works on this data directory."""


def claim(directory: Path) -> int:
    """Makes the data directory ours alone, for as long as the returned descriptor is open here
    or in a child."""
    directories.make(directory)
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _CLAIM_SECONDS_MAX
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise DirectoryInUse(f"{directory} is in use by another etagere process") from None
            time.sleep(0.02)


def engine_children(
    directory: Path, config: Config, clock: Clock | None = None
) -> dict[str, ChildMain]:
    """Prepares the ledger of a claimed directory; returns the processes that serve it."""
    clock = clock or SystemClock()
    reserve.give_way(directory)
    ledger.create(directory, config, clock)
    return {"writer": writer_main(directory, listen(directory), config, clock)}


def serve_engine(directory: Path, config: Config, clock: Clock | None = None) -> int:
    """Runs the engine's processes until told to stop; returns an exit status."""
    held = claim(directory)
    try:
        return Supervisor(engine_children(directory, config, clock)).run()
    finally:
        os.close(held)
