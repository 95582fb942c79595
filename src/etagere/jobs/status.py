"""The status of a running server: its processes, its jobs and its disk, and what is wrong with
them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from etagere.config import Config
from etagere.engine import ledger, reserve
from etagere.jobs.health import ChildHealth, ask
from etagere.processes import SupervisorStatus

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")
FAILURES_MAX = 3
"""This many consecutive failures of a job are a problem; fewer are often transient."""


class Disk(NamedTuple):
    """The space of a data directory."""

    free_bytes: int
    reserve_bytes: int
    reserve_is_whole: bool
    log_bytes: int
    ledger_bytes: int


def children_of(
    directory: Path, supervisor: SupervisorStatus | None, seconds_max: float
) -> dict[str, ChildHealth | None]:
    """Returns the health of each child by name; None for those that do not respond in time."""
    if supervisor is None:
        return {}
    names = [child.name for child in supervisor.children]
    answers = ask(directory, dict.fromkeys(names, ChildHealth), seconds_max)
    return {name: answers.get(name) for name in names}


def disk_of(directory: Path) -> Disk:
    """Returns the space of a data directory. May raise OSError."""
    room = os.statvfs(directory)
    wanted = Config().reserve_bytes
    kept = _allocated_bytes(directory / reserve.RESERVE_NAME)
    path = ledger.database_path(directory)
    return Disk(
        free_bytes=room.f_bavail * room.f_frsize,
        reserve_bytes=kept,
        reserve_is_whole=kept >= wanted,
        log_bytes=_length(path.with_name(f"{path.name}-wal")),
        ledger_bytes=_length(path),
    )


def _length(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _allocated_bytes(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_blocks * 512
    return 0


# Problems


def process_problems(
    supervisor: SupervisorStatus, children: Mapping[str, ChildHealth | None]
) -> list[str]:
    problems = ["the server is stopping"] if supervisor.stopping else []
    for child in supervisor.children:
        if not child.pid:
            problems.append(f"{child.name} is not running: {child.last_end or 'not started yet'}")
        elif not child.settled:
            problems.append(f"{child.name} keeps failing: {child.last_end}")
        elif children.get(child.name) is None:
            problems.append(f"{child.name} (pid {child.pid}) does not respond")
    return problems


def job_problems(children: Mapping[str, ChildHealth | None]) -> list[str]:
    return [
        f"{name}: {job.name} failed {job.consecutive_failures} times in a row: {job.last_error}"
        for name, health in children.items()
        for job in (health.jobs if health is not None else ())
        if job.consecutive_failures >= FAILURES_MAX
    ]


def disk_problems(disk: Disk) -> list[str]:
    if disk.reserve_is_whole or not disk.ledger_bytes:
        return []
    return [f"the disk is full: {size_text(disk.free_bytes)} free, the reserve is released"]


def size_text(count: int) -> str:
    """Formats a number of bytes for people."""
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{count} {_UNITS[0]}"
