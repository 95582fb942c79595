"""Limits of CPU time for groups of processes, by control groups of Linux. They need root."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_PERIOD_MICROSECONDS: Final = 20_000
"""Short, so that a process that has used its time does not wait for long."""
_ROOT: Final = Path("/sys/fs/cgroup")
_CONTROLLER: Final = _ROOT / "cpu"
"""With version 1 of control groups, each controller has a hierarchy of its own."""
_PROCESSES: Final = "cgroup.procs"


def is_available() -> bool:
    """Returns whether this process may limit the CPU time of others."""
    parent = _parent()
    return os.access(parent, os.W_OK) and (parent / _PROCESSES).exists()


@contextlib.contextmanager
def limited(name: str, pids: Iterable[int], cores: float) -> Iterator[None]:
    """Limits the CPU time that processes, and those that they start, use together."""
    parent = _parent()
    group = parent / f"etagere-bench-{os.getpid()}-{name}"
    group.mkdir()
    try:
        quota = round(cores * _PERIOD_MICROSECONDS)
        if parent == _CONTROLLER:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_MICROSECONDS), encoding="ascii")
            (group / "cpu.cfs_quota_us").write_text(str(quota), encoding="ascii")
        else:
            (parent / "cgroup.subtree_control").write_text("+cpu", encoding="ascii")
            (group / "cpu.max").write_text(f"{quota} {_PERIOD_MICROSECONDS}", encoding="ascii")
        _move(pids, group)
        yield
    finally:
        # Processes may start others while they are moved.
        while pids := list(map(int, (group / _PROCESSES).read_text(encoding="ascii").split())):
            _move(pids, parent)
        group.rmdir()


def _parent() -> Path:
    return _CONTROLLER if (_CONTROLLER / _PROCESSES).exists() else _ROOT


def _move(pids: Iterable[int], group: Path) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            (group / _PROCESSES).write_text(str(pid), encoding="ascii")
