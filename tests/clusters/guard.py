"""Directories of engines, which leave no process and no file behind, even if the tests are killed.

A process belongs to the directory in which it works. A guard, a process of its own, watches the
processes that use the directory. When the last of them has ended, it kills what belongs to the
directory and removes it. This file is also the program of the guard.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_POLL_SECONDS: Final = 0.3
_EXIT_SECONDS_MAX: Final = 10.0
_USERS: Final = "users"
_FILES_ELSEWHERE: Final = "files-elsewhere"
_POSTGRES: Final = "postgres"


@contextlib.contextmanager
def private_directory(name: str) -> Iterator[Path]:
    """Yields a new directory for an engine that one test uses."""
    directory = Path(tempfile.mkdtemp(prefix=f"etagere-{name}-"))
    # The account that runs the engine must be able to pass.
    directory.chmod(0o711)
    guard = start_guard(directory)
    try:
        yield directory
    finally:
        destroy(directory)
        guard.kill()
        guard.wait()


@contextlib.contextmanager
def locked_directory(directory: Path) -> Iterator[None]:
    """Locks a directory that several processes share, and creates it unless it exists."""
    while True:
        directory.mkdir(mode=0o711, exist_ok=True)
        with contextlib.suppress(FileNotFoundError), _lock(directory) as is_current:
            if is_current:
                yield
                return


@contextlib.contextmanager
def _lock(directory: Path) -> Iterator[bool]:
    """Yields whether the directory still exists now that it is locked."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield directory.exists() and directory.stat().st_ino == os.fstat(descriptor).st_ino
    finally:
        os.close(descriptor)


def register_user(directory: Path) -> None:
    """Keeps a directory until this process has ended."""
    users = directory / _USERS
    users.mkdir(exist_ok=True)
    (users / str(os.getpid())).touch()


def start_guard(directory: Path) -> subprocess.Popen[bytes]:
    """Starts the guard of a directory, with this process as its first user."""
    register_user(directory)
    command = [sys.executable, "-I", "-S", __file__, str(directory)]
    # Neither Ctrl-C nor the end of this process's group may reach it.
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, cwd="/")


def add_file_elsewhere(directory: Path, path: Path) -> None:
    """Notes a file outside of the directory that is to be removed with it."""
    with (directory / _FILES_ELSEWHERE).open("a", encoding="utf-8") as notes:
        notes.write(f"{path}\n")


def destroy(directory: Path) -> None:
    """Kills the processes of a directory and removes it."""
    deadline = time.monotonic() + _EXIT_SECONDS_MAX
    # PostgreSQL removes its shared memory when it is told to stop at once.
    _signal_all(directory, signal.SIGQUIT, only=_POSTGRES)
    while pids := processes_in(directory):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {pids} in {directory} do not end")
        may_stop = time.monotonic() < deadline - _EXIT_SECONDS_MAX / 2
        _signal_all(directory, signal.SIGKILL, other_than=_POSTGRES if may_stop else None)
        time.sleep(0.02)
    with contextlib.suppress(FileNotFoundError):
        for line in (directory / _FILES_ELSEWHERE).read_text("utf-8").splitlines():
            Path(line).unlink(missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)


def processes_in(directory: Path) -> list[int]:
    """Returns the processes that work in a directory or below it."""
    pids = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if pid != os.getpid() and _works_in(pid, directory)]


def _works_in(pid: int, directory: Path) -> bool:
    try:
        return (Path(f"/proc/{pid}/cwd").readlink()).is_relative_to(directory)
    except OSError:  # ended, or belongs to someone else
        return False


def _signal_all(
    directory: Path,
    number: signal.Signals,
    *,
    only: str | None = None,
    other_than: str | None = None,
) -> None:
    for pid in processes_in(directory):
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            program = Path(f"/proc/{pid}/comm").read_text("utf-8").strip()
            if program != other_than and only in {None, program}:
                os.kill(pid, number)
                os.kill(pid, signal.SIGCONT)


def start_daemon(
    command: list[str],
    directory: Path,
    log_path: Path,
    *,
    may_be_root: bool = False,
    variables: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a process that works in a directory and whose output goes to a log. It runs under the
    account of engines if this process is root and the engine refuses to be."""
    account = None if may_be_root else _engine_account()
    with log_path.open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory,
            env={**os.environ, **(variables or {})},
            start_new_session=True,
            user=account and account.pw_uid,
            group=account and account.pw_gid,
            extra_groups=account and [],
        )


def give_to_engine(path: Path) -> None:
    """Makes the account of engines the owner of a file or a directory."""
    account = _engine_account()
    if account is not None:
        os.chown(path, account.pw_uid, account.pw_gid)


def _engine_account() -> pwd.struct_passwd | None:
    """Returns the account for engines that refuse to run as root; None if this process is not
    root and runs them itself."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_POSTGRES)
    except KeyError:
        return pwd.getpwnam("nobody")


def _is_used(directory: Path) -> bool:
    return any(_is_running(entry.name) for entry in (directory / _USERS).iterdir())


def _is_running(pid: str) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def _guard(directory: Path) -> None:
    while directory.exists():
        with contextlib.suppress(FileNotFoundError):
            if not _is_used(directory):
                with _lock(directory) as is_current:
                    if is_current and not _is_used(directory):
                        destroy(directory)
                        return
        time.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]))
