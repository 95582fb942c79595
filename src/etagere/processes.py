"""A supervisor that keeps a few named child processes running.

Children are forked from one process that has imported everything and opened nothing, so they start
in milliseconds. Each child gets a lifeline: a pipe that reports end of file when the supervisor is
gone, for whatever reason, so that no child outlives it.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

from etagere import service_manager
from etagere.metrics.snapshots import Snapshot
from etagere.telemetry.logs import name_process

logger = logging.getLogger(__name__)

EXIT_FINAL = 78
"""The exit status of a child that would fail again if it were restarted."""
EXIT_RESTART_ALL = 75
"""The exit status of a child after which all children must be killed and restarted."""
EXIT_START_AGAIN = 76
"""The exit status of a child that has ended on purpose, to be started again."""

RELOAD_SIGNAL = signal.SIGHUP
"""Makes the supervisor reload the files that may change while it runs, and then its children. It is
blocked in a child until the child is able to handle it."""
# SIGIO: a status request has arrived, or the input has ended.
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGIO, RELOAD_SIGNAL}
_STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
GRACE_SECONDS = 10.0
"""How long a child has to stop before it is killed."""
STOP_SECONDS_MAX = 2 * GRACE_SECONDS
"""How long all children have to stop: the first stops after the others."""
_RESTART_SECONDS_MAX = 5.0
_HEALTHY_SECONDS = 10.0
# One early exit may be an accident; from the second on, the child is unstable.
_FAILURES_MIN = 2
_ATTEMPTS_MAX = 5
_FORK_RETRY_SECONDS = 1.0
_INPUT_BYTES = 64 * 1024
_INPUT_PAUSE_SECONDS = 0.1  # between reads of an input that may be endless

ChildMain = Callable[[int], None]
"""The main function of a child; the argument is the file descriptor of its lifeline."""


def exit_at_once(status: int) -> NoReturn:
    """Ends this process like a crash: nothing is closed, flushed or waited for."""
    os._exit(status)


def end_without_supervisor() -> None:
    """Limits how long this child, whose supervisor is gone, may run on: after the usual grace
    period the kernel kills it, even if it hangs. A new server waits for the children of the old
    one."""
    signal.alarm(math.ceil(GRACE_SECONDS))


def _has_terminal() -> bool:
    """Returns whether this process has a controlling terminal that is still open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _flush_output() -> None:
    """Flushes the output, and ignores errors: the reader may be gone or its disk full, and that
    must not keep a process from starting or ending."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


@dataclass(frozen=True)
class ChildStatus:
    """The status of a child. Times are in seconds since 1970."""

    name: str
    pid: int
    """0 if it is not running."""
    started: float
    restarts: int
    last_end: str
    """How it last ended; empty if it never did."""
    last_ended: float | None
    settled: bool
    """Whether it has been running for a while, or has not failed repeatedly."""


@dataclass(frozen=True)
class SupervisorStatus:
    """The processes of a server. Times are in seconds since 1970."""

    pid: int
    now: float
    stopping: bool
    children: tuple[ChildStatus, ...]


@dataclass(frozen=True)
class ProcessHealth:
    """A process that answers. The time is in seconds since 1970."""

    pid: int
    now: float


class StatusSocket(Protocol):
    """The socket on which a process receives health queries."""

    def fileno(self) -> int: ...

    def answer(
        self,
        report: Callable[[], object],
        metrics: Callable[[], Snapshot] | None = None,
    ) -> None:
        """Answers all queries that have arrived: with the report, or with what was counted."""
        ...

    def close(self) -> None: ...


@dataclass
class _Child:
    name: str
    main: ChildMain
    pid: int = 0
    started_at: float = 0.0
    start_at: float = 0.0
    failures: int = 0
    proven: bool = False
    """Whether it has worked before, so that a failure may be temporary."""
    starts: int = 0
    last_end: str = ""
    last_ended: float | None = None

    @property
    def status(self) -> ChildStatus:
        lived = time.monotonic() - self.started_at
        return ChildStatus(
            self.name,
            self.pid,
            time.time() - lived,
            max(0, self.starts - 1),
            self.last_end,
            self.last_ended,
            self.failures < _FAILURES_MIN or lived > _HEALTHY_SECONDS,
        )


class Supervisor:
    """Starts children in order, restarts those that die, and stops them: first all but the first
    one, then the first one, which serves the others."""

    def __init__(
        self,
        children: Mapping[str, ChildMain],
        *,
        grace_seconds: float = GRACE_SECONDS,
        status_socket: StatusSocket | None = None,
        reload: Callable[[], bool] = lambda: False,
        stop_at_eof: int | None = None,
        dispensable: Collection[str] = (),
    ) -> None:
        """`dispensable` are children without which the others go on. `reload` returns whether the
        children have to reload too. `stop_at_eof` is the descriptor of an input at whose end the
        supervisor stops. What arrives there is discarded."""
        self._children = [_Child(name, main) for name, main in children.items()]
        self._status_socket = status_socket
        self._reload = reload
        self._dispensable = dispensable
        self._input = stop_at_eof
        self._reads_at = 0.0  # 0: nothing was left of the input
        self._grace_seconds = grace_seconds
        self._lifeline, self._life = os.pipe()
        self._stopping = False
        self._status = 0

    def run(self) -> int:
        """Supervises until SIGTERM or SIGINT; returns an exit status."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self._signal_input(True)
        # A terminal that is closed sends the reload signal too. `nohup` ignores it.
        ignored = signal.getsignal(RELOAD_SIGNAL) == signal.SIG_IGN
        stops_with_terminal = not ignored and _has_terminal()
        try:
            self._stopping = self._input_has_ended()
            while not self._stopping:
                self._start_due()
                received = signal.sigtimedwait(_SIGNALS, self._seconds_until_due())
                if received is not None and received.si_signo in _STOP_SIGNALS:
                    self._stopping = True
                self._stopping = self._stopping or self._input_has_ended()
                if received is not None and received.si_signo == RELOAD_SIGNAL:
                    if stops_with_terminal and not _has_terminal():
                        self._stopping = True
                    else:
                        self._reload_all()
                self._reap()
                self._answer_status_requests()
        finally:
            self._stop()
            self._signal_input(False)
            # Discards signals that are still pending.
            while signal.sigtimedwait(_SIGNALS, 0):
                pass
            os.close(self._life)
            os.close(self._lifeline)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        return self._status

    def _reload_all(self) -> None:
        service_manager.notify_reloading()
        try:
            if self._reload():
                for child in self._children:
                    if child.pid:
                        os.kill(child.pid, RELOAD_SIGNAL)
        except Exception:
            logger.exception("could not reload")
        service_manager.notify(service_manager.READY)

    def _signal_input(self, wanted: bool) -> None:
        """Makes the kernel send SIGIO, which is blocked and waited for like the other signals, when
        a status request arrives or the input ends."""
        inputs = [] if self._status_socket is None else [self._status_socket.fileno()]
        for descriptor in inputs if self._input is None else [*inputs, self._input]:
            fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
            flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_ASYNC
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | (os.O_ASYNC if wanted else 0))

    def _input_has_ended(self) -> bool:
        if self._input is None or time.monotonic() < self._reads_at:
            return False
        self._reads_at = 0.0
        try:
            if select.select([self._input], [], [], 0)[0]:
                if not os.read(self._input, _INPUT_BYTES):
                    return True
                self._reads_at = time.monotonic() + _INPUT_PAUSE_SECONDS
        except OSError as error:  # such as a terminal that is gone
            return not isinstance(error, BlockingIOError)
        return False

    def _answer_status_requests(self) -> None:
        if self._status_socket is not None:
            try:
                self._status_socket.answer(self._report)
            except Exception:
                logger.exception("could not answer a status request")

    def _report(self) -> SupervisorStatus:
        children = tuple(child.status for child in self._children)
        return SupervisorStatus(os.getpid(), time.time(), self._stopping, children)

    def _start_due(self) -> None:
        for child in self._children:
            if not child.pid and child.start_at <= time.monotonic():
                try:
                    self._fork(child)
                except OSError as error:
                    # No memory or too many processes, which must not affect running children.
                    logger.error("cannot start %s: %s", child.name, error)
                    child.start_at = time.monotonic() + _FORK_RETRY_SECONDS

    def _seconds_until_due(self) -> float:
        """Returns the time until a child is to be started, or the input to be read."""
        due = [child.start_at for child in self._children if not child.pid]
        if self._reads_at:
            due.append(self._reads_at)
        return max(0.0, min(due) - time.monotonic()) if due else 3600.0

    def _fork(self, child: _Child) -> None:
        _flush_output()
        pid = os.fork()
        if pid == 0:
            self._become(child)
        child.pid = pid
        child.started_at = time.monotonic()
        child.starts += 1
        logger.info("started %s (pid %d)", child.name, pid)

    def _become(self, child: _Child) -> None:
        """Runs the child's main function in the process just forked; never returns."""
        status = 1
        try:
            os.close(self._life)
            name_process(child.name)
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C on a terminal is for the supervisor
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS - {RELOAD_SIGNAL})
            child.main(self._lifeline)
            status = 0
        except SystemExit as exit_:
            status = exit_.code if isinstance(exit_.code, int) else 1
        except BaseException:
            logger.exception("%s failed", child.name)
        finally:
            _flush_output()
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
        child.last_end, child.last_ended = ended, time.time()
        lived = time.monotonic() - child.started_at
        is_failure = lived <= _HEALTHY_SECONDS and code != EXIT_START_AGAIN
        child.failures = child.failures + 1 if is_failure else 0
        # A child that was killed by a signal had been running.
        child.proven = child.proven or not child.failures or code < 0
        hopeless = child.failures >= _ATTEMPTS_MAX and not child.proven
        if (code == EXIT_FINAL or hopeless) and child.name not in self._dispensable:
            logger.error("%s cannot run (pid %d): %s", child.name, child.pid, ended)
            self._stopping, self._status = True, EXIT_FINAL
        elif not self._stopping:
            # The first restart is immediate; a child that keeps dying is started less and less.
            delay = min(_RESTART_SECONDS_MAX, 0.05 * (2**child.failures - 2))
            child.start_at = time.monotonic() + max(0.0, delay)
            level = logging.INFO if code == EXIT_START_AGAIN else logging.ERROR
            logger.log(level, "%s (pid %d) exited: %s; restarting it", child.name, child.pid, ended)
            if code == EXIT_RESTART_ALL:
                self._kill_others(child)
        child.pid = 0

    def _kill_others(self, failed: _Child) -> None:
        """Kills the other children, to be restarted together with the one that requested it."""
        for child in self._children:
            if child.pid and child is not failed:
                logger.error("killing %s (pid %d) to restart it", child.name, child.pid)
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
                child.pid, child.start_at = 0, failed.start_at
                child.last_end, child.last_ended = f"killed after {failed.name}", time.time()

    def _stop(self) -> None:
        self._stopping = True
        service_manager.notify(service_manager.STOPPING)
        self._stop_together(self._children[1:], server=self._children[0])
        self._stop_together(self._children[:1])

    def _stop_together(self, children: Sequence[_Child], server: _Child | None = None) -> None:
        """Stops children. `server` is a child that they need until they have stopped."""
        for child in children:
            if child.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGTERM)
        self._wait_for(children, server)
        for child in children:
            if child.pid:
                logger.error("%s (pid %d) did not stop; killing it", child.name, child.pid)
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
                child.pid = 0

    def _has_ended(self, child: _Child) -> bool:
        if child.pid and os.waitpid(child.pid, os.WNOHANG)[0]:
            child.pid = 0
        return not child.pid

    def _wait_for(self, children: Sequence[_Child], server: _Child | None) -> None:
        """Waits until these children have ended or the grace period is over."""
        deadline = time.monotonic() + self._grace_seconds
        may_restart = server is not None and self._status != EXIT_FINAL
        while True:
            running = [child for child in children if not self._has_ended(child)]
            left = deadline - time.monotonic()
            if left <= 0 or not running:
                return
            if server is not None and may_restart and self._has_ended(server):
                # Once. The others may have data that only this child can store.
                may_restart = False
                logger.error("%s exited before the others had stopped; restarting it", server.name)
                with contextlib.suppress(OSError):
                    self._fork(server)
            received = signal.sigtimedwait(_SIGNALS, left)
            # Not on a second SIGTERM: some tools send one to the process and one to its group.
            if received is not None and received.si_signo == signal.SIGINT:
                self._grace_seconds = 0.0
                return
            self._answer_status_requests()
