"""Checkpoints: moving the write-ahead log into the database, and keeping the log short.

SQLite counts frames as moved as soon as they are written to the database file, but syncs that
file only when a checkpoint reaches the end of the log. A sync that fails may have dropped any of
those pages, so the frames in the log are the only good copies of them, and a checkpoint that went
on where the last one stopped would let the log be written over. So after any I/O error in a
checkpoint all processes are stopped without closing SQLite, and a writer that starts moves the
whole log again, from its first frame. See docs/decisions/0006.

The log can start over only at a moment when no reader needs it. Readers give up their snapshots
after `Config.snapshot_seconds_max`; the writer waits for them once the log is long.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import NoReturn

import apsw

from etagere.config import Config
from etagere.engine import ledger
from etagere.processes import EXIT_RESTART_ALL, exit_at_once

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.001
# For readers that are just ending, when nobody else waits for the writer.
_IDLE_SECONDS_MAX = 0.05
# For readers of processes that outlived the writer before this one.
_START_SECONDS_MAX = 5.0
# After a reader has kept the log from starting over, in seconds: doubled each time.
_RETRY_SECONDS_MIN = 0.25
_RETRY_SECONDS_MAX = 30.0


class Checkpointer:
    """Keeps the log of the writer's connection short, mostly beside the writer's own work."""

    def __init__(self, directory: Path, config: Config) -> None:
        self._directory = directory
        self._config = config
        self._threads = ThreadPoolExecutor(1, "checkpoint")
        self._aside: Future[None] | None = None
        self._log_pages = 0
        self._moved_pages = 0
        self._retry_at = 0.0
        self._retry_seconds = _RETRY_SECONDS_MIN

    def follow(self, connection: apsw.Connection) -> None:
        """Takes over a connection that was just opened."""
        self._connection = connection
        connection.set_wal_hook(self._note_log_pages)

    def start_over(self) -> None:
        """Moves all of the log, and has it start over. Whoever opens the log after a sync of it has
        failed must do that before anything is answered: frames that the sync dropped look clean
        to a later one, and without them a recovery would not find those behind them. A log that
        readers need is written over itself instead. Raises `OSError` if that fails."""
        if not self._restart(_START_SECONDS_MAX):
            logger.warning("cannot restart the write-ahead log now; rewriting it")
            ledger.rewrite_log(self._directory)

    def _note_log_pages(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        if pages < self._log_pages:
            self._moved_pages = 0  # the log has started over
        self._log_pages = pages
        return apsw.SQLITE_OK

    def run_if_due(self) -> None:
        """After a group: begins a checkpoint of a long log in a thread, beside the next groups,
        or ends it with what those have added, so that the log can start over."""
        if self._aside is not None:
            deadline = time.monotonic() + self._config.log_restart_seconds_max
            if self._is_long():
                # Groups would write to it faster than it is moved.
                wait([self._aside], self._config.log_restart_seconds_max)
            if self._aside.done():
                self._aside = None
                self._move(self._connection)
                if self._is_long():
                    self._restart_before(deadline)
        elif self._log_pages - self._moved_pages >= self._config.checkpoint_pages:
            self._aside = self._threads.submit(self._move_aside)

    def run_idle(self) -> None:
        """When nobody asks for anything: moves all of the log and gives its space back."""
        if self._aside is not None:
            self.run_if_due()
        elif self._log_pages > self._moved_pages:
            self._move(self._connection)
        elif ledger.log_bytes(self._directory) > self._config.log_bytes_kept:
            self._restart(_IDLE_SECONDS_MAX, apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _is_long(self) -> bool:
        """Whether the log is to start over even if the next groups have to wait for it."""
        return (
            self._log_pages >= self._config.log_restart_pages and time.monotonic() >= self._retry_at
        )

    def _restart_before(self, deadline: float) -> None:
        """Readers that overlap keep a log from starting over by itself: waits until those of now
        have ended. Who begins to read meanwhile needs only the database."""
        if self._restart(max(_IDLE_SECONDS_MAX, deadline - time.monotonic())):
            self._retry_seconds = _RETRY_SECONDS_MIN
            return
        logger.warning(
            "a reader prevents the write-ahead log (%d pages) from restarting", self._log_pages
        )
        self._retry_at = time.monotonic() + self._retry_seconds
        self._retry_seconds = min(_RETRY_SECONDS_MAX, self._retry_seconds * 2)

    def _restart(self, seconds_max: float, mode: int = apsw.SQLITE_CHECKPOINT_RESTART) -> bool:
        """Moves all of the log and has it start over; says whether readers allowed it."""
        deadline = time.monotonic() + seconds_max

        def keep_waiting(_attempts: int) -> bool:
            time.sleep(_POLL_SECONDS)
            return time.monotonic() < deadline

        self._connection.set_busy_handler(keep_waiting)
        try:
            self._connection.wal_checkpoint(mode=mode)
        except (apsw.BusyError, apsw.FullError) as error:
            logger.info("a checkpoint did not complete: %s", error)
            return False
        except apsw.Error as error:
            _stop_everything(error)
        finally:
            self._connection.set_busy_timeout(ledger.BUSY_MILLISECONDS)
        self._log_pages = self._moved_pages = 0
        return True

    def _move_aside(self) -> None:
        try:
            connection = ledger.open_for_writing(self._directory, self._config)
        except apsw.Error as error:
            logger.warning("cannot start a checkpoint, will retry: %s", error)
            return
        self._move(connection)
        connection.close(True)

    def _move(self, connection: apsw.Connection) -> None:
        """Moves what no reader needs in the log."""
        try:
            in_log, moved = connection.wal_checkpoint()
        except (apsw.BusyError, apsw.FullError) as error:
            # The file could not grow: nothing was dropped, and nothing counts as moved.
            logger.warning("a checkpoint failed, will retry: %s", error)
        except apsw.Error as error:
            _stop_everything(error)
        else:
            self._log_pages, self._moved_pages = in_log, moved

    def close(self) -> None:
        self._threads.shutdown()


def _stop_everything(error: apsw.Error) -> NoReturn:
    logger.critical(
        "a checkpoint failed (%s): restarting all processes, to checkpoint the whole log again",
        error,
    )
    exit_at_once(EXIT_RESTART_ALL)
