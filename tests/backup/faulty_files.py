"""Files of a backup whose system calls fail, or end the process, at a chosen call."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from etagere.backup.files import Files

KILLED = 9


class FaultyFiles(Files):
    """Files that call `strike` instead of making the n-th call. A write is half done first."""

    def __init__(self, nth: int = 0, strike: Callable[[], NoReturn] | None = None) -> None:
        self.calls: list[tuple[str, str]] = []
        """The calls that were made, each with the name of its file."""
        self._nth = nth
        self._strike = strike

    def _count(self, call: str, target: Path | int) -> bool:
        path = target if isinstance(target, Path) else Path(f"/proc/self/fd/{target}").readlink()
        self.calls.append((call, str(path)))
        return len(self.calls) == self._nth

    def _check(self, call: str, target: Path | int) -> None:
        if self._count(call, target) and self._strike is not None:
            self._strike()

    def create(self, path: Path) -> int:
        self._check("create", path)
        return super().create(path)

    def write(self, descriptor: int, data: bytes | memoryview, offset: int) -> None:
        if self._count("write", descriptor) and self._strike is not None:
            super().write(descriptor, memoryview(data)[: len(data) // 2], offset)
            self._strike()
        super().write(descriptor, data, offset)

    def truncate(self, descriptor: int, length: int) -> None:
        self._check("truncate", descriptor)
        super().truncate(descriptor, length)

    def sync(self, descriptor: int) -> None:
        self._check("sync", descriptor)
        super().sync(descriptor)

    def rename(self, path: Path, new_path: Path) -> None:
        self._check("rename", new_path)
        super().rename(path, new_path)

    def unlink(self, path: Path) -> None:
        self._check("unlink", path)
        super().unlink(path)

    def make_directory(self, path: Path) -> None:
        self._check("make_directory", path)
        super().make_directory(path)

    def remove_directory(self, path: Path) -> None:
        self._check("remove_directory", path)
        super().remove_directory(path)

    def sync_directory(self, path: Path) -> None:
        self._check("sync_directory", path)
        super().sync_directory(path)


def failing(number: int) -> Callable[[], NoReturn]:
    """Returns a strike that is an error of a system call."""

    def fail() -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fail


def kill() -> NoReturn:
    """Ends the process, as `kill -9` does: no handler and no `finally` runs."""
    os._exit(KILLED)


def survives(run: Callable[[Files], object], files: Files) -> bool:
    """Runs something in a child process; returns whether it was not killed."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            run(files)
            status = 0
        finally:
            os._exit(status)
    _, ended = os.waitpid(pid, 0)
    status = os.waitstatus_to_exitcode(ended)
    assert status in (0, KILLED), status
    return status == 0
