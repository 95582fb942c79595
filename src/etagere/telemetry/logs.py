"""The log of a server: lines on standard error, which all of its processes share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import stat
import sys
import threading
from types import TracebackType
from typing import Any, Final

from etagere.telemetry.formats import FORMATTERS, LineFormatter
from etagere.telemetry.repetition import RepetitionFilter

logger = logging.getLogger(__name__)

_STANDARD_ERROR: Final = 2
_ATOMIC_BYTES_MAX: Final = 4_096
"""PIPE_BUF: what is written to a pipe at once, without the lines of other processes between."""

_STUCK_SECONDS: Final = 0.2
"""How long a process, and the requests in it, wait for the reader of its log, once."""


class LogOutput:
    """Where the log is written to. Lines that nobody reads are dropped, because a log that cannot
    be written must not hold up or end requests."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_stuck = False
        self._dropped = 0

    def write(self, lines: bytes) -> None:
        """Writes whole lines. Errors are ignored."""
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                # A file takes any number of lines in one piece, and is never stuck.
                _write_all(self._descriptor, lines)
            else:
                self._write_in_pieces(lines)

    def _write_in_pieces(self, lines: bytes) -> None:
        """Writes as many lines at once as a pipe takes in one piece."""
        begin = 0
        while begin < len(lines):
            limit = begin + _ATOMIC_BYTES_MAX
            end = len(lines) if limit >= len(lines) else lines.rfind(b"\n", begin, limit) + 1
            if not end:  # a longer line
                end = lines.find(b"\n", limit) + 1
            self._write_piece(lines[begin:end])
            begin = end

    def _write_piece(self, data: bytes) -> None:
        left = data
        while left:
            seconds = 0.0 if self._is_stuck else _STUCK_SECONDS
            if not select.select((), (self._descriptor,), (), seconds)[1]:
                self._is_stuck = True
                self._dropped += left.count(b"\n")
                return
            left = left[os.write(self._descriptor, left[:_ATOMIC_BYTES_MAX]) :]
        self._is_stuck = False
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            logger.warning("%d lines of the log were dropped: nobody read them", dropped)


def _write_all(descriptor: int, data: bytes) -> None:
    left = data
    while left:
        left = left[os.write(descriptor, left) :]


write_to_standard_error: Final = LogOutput(_STANDARD_ERROR).write


class LineHandler(logging.Handler):
    """Writes each event at once."""

    def __init__(self, lines: LineFormatter) -> None:
        super().__init__()
        self.lines = lines
        self.setFormatter(lines)
        self.addFilter(RepetitionFilter())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as error:  # a wrong argument of the caller
            line = f"etagere: cannot format a log message of {record.name}: {type(error).__name__}"
        write_to_standard_error(line.encode("utf-8", "backslashreplace") + b"\n")


def configure(log_format: str, level: str) -> None:
    """Sets up the log of this process and of those that it forks."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    root.addHandler(LineHandler(FORMATTERS[log_format]()))
    root.setLevel(level.upper())
    logging.captureWarnings(True)
    logging.raiseExceptions = False
    sys.excepthook = _log_uncaught
    sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_uncaught_in_thread


def name_process(name: str) -> None:
    """Sets the name of this process in log lines."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LineHandler):
            handler.lines.process_name = name


def handle_loop_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs what an event loop reports. The default handler would log the values of exceptions."""
    message = context.get("message", "an event loop failed")
    logger.error("%s", message, exc_info=context.get("exception"))


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        logger.critical("uncaught exception", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(failure: threading.ExceptHookArgs) -> None:
    if failure.exc_value is not None:
        logger.error("uncaught exception in a thread", exc_info=failure.exc_value)


def _log_unraisable(failure: Any) -> None:
    logger.error("an exception was ignored", exc_info=failure.exc_value)
