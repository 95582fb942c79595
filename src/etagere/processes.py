"""A supervisor that keeps a few named child processes running.

Children are forked from one process that has imported everything and opened nothing, so
they start in milliseconds. Each child gets a lifeline: a pipe that reports end of file
when the supervisor is gone, however it went, so that no child outlives it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

logger = logging.getLogger(__name__)

EXIT_FINAL = 78
"""A child's exit status that says: starting me again will not help."""
EXIT_RESTART_ALL = 75
"""A child's exit status that says: kill all the others, and start all of us again."""

_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}
_RESTART_SECONDS_MAX = 5.0
_HEALTHY_SECONDS = 10.0
_ATTEMPTS_MAX = 5

ChildMain = Callable[[int], None]
"""What a child runs; the argument is the file descriptor of its lifeline."""


def exit_at_once(status: int) -> NoReturn:
    """Ends this process as a crash would: nothing is closed, flushed or waited for."""
    os._exit(status)


@dataclass
class _Child:
    name: str
    main: ChildMain
    pid: int = 0
    started_at: float = 0.0
    start_at: float = 0.0
    failures: int = 0
    proven: bool = False
    """It has been seen at work: what ends it now may pass."""


class Supervisor:
    """Starts children in order, restarts those that die, stops them in reverse order."""

    def __init__(self, children: Mapping[str, ChildMain], *, grace_seconds: float = 10.0) -> None:
        self._children = [_Child(name, main) for name, main in children.items()]
        self._grace_seconds = grace_seconds
        self._lifeline, self._life = os.pipe()
        self._stopping = False
        self._status = 0

    def run(self) -> int:
        """Supervises until told to stop by SIGTERM or SIGINT; returns an exit status."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            while not self._stopping:
                self._start_due()
                received = signal.sigtimedwait(_SIGNALS, self._seconds_until_start())
                if received is not None and received.si_signo != signal.SIGCHLD:
                    self._stopping = True
                self._reap()
        finally:
            self._stop()
            # Whoever has asked more often than it takes has been heard.
            while signal.sigtimedwait(_SIGNALS, 0):
                pass
            os.close(self._life)
            os.close(self._lifeline)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        return self._status

    def _start_due(self) -> None:
        for child in self._children:
            if not child.pid and child.start_at <= time.monotonic():
                self._fork(child)

    def _seconds_until_start(self) -> float:
        due = [child.start_at for child in self._children if not child.pid]
        return max(0.0, min(due) - time.monotonic()) if due else 3600.0

    def _fork(self, child: _Child) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._become(child)
        child.pid = pid
        child.started_at = time.monotonic()
        logger.info("started %s (pid %d)", child.name, pid)

    def _become(self, child: _Child) -> None:
        """Runs the child's work in the process just forked; never returns."""
        status = 1
        try:
            os.close(self._life)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's ^C is the supervisor's
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            child.main(self._lifeline)
            status = 0
        except SystemExit as exit_:
            status = exit_.code if isinstance(exit_.code, int) else 1
        except BaseException:
            logger.exception("%s failed", child.name)
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _reap(self) -> None:
        for child in self._children:
            if not child.pid:
                continue
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self._ended(child, status)

    def _ended(self, child: _Child, wait_status: int) -> None:
        code = os.waitstatus_to_exitcode(wait_status)
        ended = f"signal {-code}" if code < 0 else f"exit status {code}"
        lived = time.monotonic() - child.started_at
        child.failures = 0 if lived > _HEALTHY_SECONDS else child.failures + 1
        # Who was killed had been running.
        child.proven = child.proven or not child.failures or code < 0
        hopeless = child.failures >= _ATTEMPTS_MAX and not child.proven
        if code == EXIT_FINAL or hopeless:
            logger.error("%s cannot run (pid %d): %s", child.name, child.pid, ended)
            self._stopping, self._status = True, EXIT_FINAL
        elif not self._stopping:
            # The first restart is immediate; a child that keeps dying is started less and less.
            delay = min(_RESTART_SECONDS_MAX, 0.05 * (2**child.failures - 2))
            child.start_at = time.monotonic() + max(0.0, delay)
            logger.error("%s (pid %d) died: %s; starting it again", child.name, child.pid, ended)
            if code == EXIT_RESTART_ALL:
                self._kill_others(child)
        child.pid = 0

    def _kill_others(self, failed: _Child) -> None:
        """They start again with the one that asked for it."""
        for child in self._children:
            if child.pid and child is not failed:
                logger.error("killing %s (pid %d), to start it again", child.name, child.pid)
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
                child.pid, child.start_at = 0, failed.start_at

    def _stop(self) -> None:
        for child in reversed(self._children):
            if not child.pid:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGTERM)
            if not self._ended_within(child, self._grace_seconds):
                logger.error("%s (pid %d) did not stop; killing it", child.name, child.pid)
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
            child.pid = 0

    def _ended_within(self, child: _Child, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while True:
            pid, _ = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            received = signal.sigtimedwait(_SIGNALS, left)
            # Not SIGTERM: some who mean it once send it to a process and then to its group.
            if received is not None and received.si_signo == signal.SIGINT:
                self._grace_seconds = 0.0
                return False
