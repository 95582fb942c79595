"""Calls functions in short-lived child processes."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Final

_RESULT, _FAILURE = b"r", b"f"
_READ_BYTES: Final = 64 << 10


class ChildFailed(Exception):
    """The function failed, or took too long."""


def in_child(call: Callable[[], bytes], seconds_max: float) -> bytes:
    """Calls a function in a child process, and returns its result. Threads that it starts, and
    connections that it opens, end with that process."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if not pid:
        os.close(reading)
        _call_and_exit(call, writing)
    os.close(writing)
    try:
        return _read_result(reading, time.monotonic() + seconds_max)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _call_and_exit(call: Callable[[], bytes], writing: int) -> None:
    """Writes the result of a function, and ends this process."""
    try:
        answer = _RESULT + call()
    except BaseException as error:
        answer = _FAILURE + (str(error) or type(error).__name__).encode()
    with contextlib.suppress(OSError):
        os.write(writing, answer)
    os._exit(0)


def _read_result(reading: int, deadline: float) -> bytes:
    answer = b""
    while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
        data = os.read(reading, _READ_BYTES)
        if not data:
            break
        answer += data
    else:
        raise ChildFailed("no answer in time")
    if answer[:1] != _RESULT:
        raise ChildFailed(answer[1:].decode("utf-8", "replace") or "it ended without an answer")
    return answer[1:]
