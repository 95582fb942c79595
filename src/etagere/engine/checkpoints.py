"""Checkpoints: copying the write-ahead log into the database, and keeping the log short.

SQLite counts frames as checkpointed as soon as they are written to the database file, but syncs
that file only when a checkpoint reaches the end of the log. A failed sync may have dropped any of
those pages, so the frames in the log are the only good copies of them, and a checkpoint that
continued where the last one stopped would allow the log to be overwritten. So after any I/O error
in a checkpoint all processes are stopped without closing SQLite, and a writer that starts
checkpoints the whole log again, from its first frame. See docs/decisions/0006.

The log can be restarted only while no reader needs it. Readers give up their snapshots after
`Config.snapshot_seconds_max`; the writer waits for them once the log is long. It does not wait for
a process that copies the ledger, until the log is much longer. A checkpoint needs space in the
database, where a long log may need more than the reserve: see `Writer.maintain`.
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
from etagere.engine.copy_lock import is_being_copied
from etagere.processes import EXIT_RESTART_ALL, exit_at_once

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.001
# How long an idle writer waits for readers that are about to end.
_IDLE_SECONDS_MAX = 0.05
# How long a starting writer waits for readers in processes that outlived the previous writer.
_START_SECONDS_MAX = 5.0
# The pause after a reader has kept the log from being restarted; doubled each time.
_RETRY_SECONDS_MIN = 0.25
_RETRY_SECONDS_MAX = 30.0


class Checkpointer:
    """Keeps the write-ahead log short, mostly in a background thread."""

    def __init__(self, directory: Path, config: Config) -> None:
        self._directory = directory
        self._config = config
        self._threads = ThreadPoolExecutor(1, "checkpoint")
        self._background: Future[None] | None = None
        self._log_pages = 0
        self._checkpointed_pages = 0
        self._retry_at = 0.0
        self._retry_seconds = _RETRY_SECONDS_MIN

    def follow(self, connection: apsw.Connection) -> None:
        """Switches to a connection that was just opened."""
        self._connection = connection
        connection.set_wal_hook(self._note_log_pages)

    def start_over(self) -> None:
        """Checkpoints the whole log and restarts it.

        Required before anything is answered after a failed sync of the log: the frames that the
        sync dropped look clean to a later sync, and without them a recovery would not find those
        behind them. A log that readers need is rewritten in place instead. Raises `OSError` if
        that fails."""
        if not self._restart(_START_SECONDS_MAX):
            logger.warning("cannot restart the write-ahead log now; rewriting it in place")
            ledger.rewrite_log(self._directory)

    def _note_log_pages(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        if pages < self._log_pages:
            self._checkpointed_pages = 0  # the log was restarted
        self._log_pages = pages
        return apsw.SQLITE_OK

    def run_if_due(self) -> None:
        """Called after each group: starts a checkpoint of a long log in a thread, concurrently with
        the next groups, or finishes it with the frames that those have added, so that the log can
        be restarted."""
        if self._background is not None:
            deadline = time.monotonic() + self._config.log_restart_seconds_max
            if self._is_long():
                # Groups would append to the log faster than it is checkpointed.
                wait([self._background], self._config.log_restart_seconds_max)
            if self._background.done():
                self._background = None
                self._checkpoint(self._connection)
                if self._is_long():
                    self._restart_before(deadline)
        elif (
            self._log_pages - self._checkpointed_pages >= self._config.checkpoint_pages
            and not self._waits_for_copy()
        ):
            self._background = self._threads.submit(self._checkpoint_in_thread)

    def run_idle(self) -> None:
        """Called while there are no requests: checkpoints the whole log and returns its space."""
        if self._background is not None:
            self.run_if_due()
        elif self._log_pages > self._checkpointed_pages:
            self._checkpoint(self._connection)
        elif ledger.log_bytes(self._directory) > self._config.log_bytes_kept:
            self._restart(_IDLE_SECONDS_MAX, apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def bytes_needed(self) -> int:
        """Returns how much a checkpoint would add to the database, if the log is longer than it
        should be, which the reserve allows for."""
        if self._log_pages < self._config.log_restart_pages:
            return 0
        path = ledger.database_path(self._directory)
        pages: int = self._connection.pragma("page_count")
        return max(0, pages * self._config.page_bytes - path.stat().st_size)

    def _is_long(self) -> bool:
        """Returns whether the log must be restarted even if the next groups have to wait."""
        return (
            self._log_pages >= self._config.log_restart_pages
            and time.monotonic() >= self._retry_at
            and not self._waits_for_copy()
        )

    def _waits_for_copy(self) -> bool:
        """Returns whether a checkpoint is to wait until the ledger was copied. It could not restart
        the log before, and would delay the next groups in vain."""
        return self._log_pages < self._config.log_copy_pages_max and is_being_copied(
            self._directory
        )

    def _restart_before(self, deadline: float) -> None:
        """Waits until the current readers have ended, and restarts the log. Overlapping readers
        would prevent that for ever; those that begin meanwhile need only the database."""
        if self._restart(max(_IDLE_SECONDS_MAX, deadline - time.monotonic())):
            self._retry_seconds = _RETRY_SECONDS_MIN
            return
        logger.warning(
            "a reader keeps the write-ahead log (%d pages) from being restarted", self._log_pages
        )
        self._retry_at = time.monotonic() + self._retry_seconds
        self._retry_seconds = min(_RETRY_SECONDS_MAX, self._retry_seconds * 2)

    def _restart(self, seconds_max: float, mode: int = apsw.SQLITE_CHECKPOINT_RESTART) -> bool:
        """Checkpoints the whole log and restarts it; returns whether readers allowed that."""
        deadline = time.monotonic() + seconds_max

        def keep_waiting(_attempts: int) -> bool:
            time.sleep(_POLL_SECONDS)
            return time.monotonic() < deadline

        self._connection.set_busy_handler(keep_waiting)
        try:
            self._connection.wal_checkpoint(mode=mode)
        except (apsw.BusyError, apsw.FullError) as error:
            logger.info("could not checkpoint the whole write-ahead log: %s", error)
            return False
        except apsw.Error as error:
            _stop_everything(error)
        finally:
            self._connection.set_busy_timeout(ledger.BUSY_MILLISECONDS)
        self._log_pages = self._checkpointed_pages = 0
        return True

    def _checkpoint_in_thread(self) -> None:
        try:
            connection = ledger.open_for_writing(self._directory, self._config)
        except apsw.Error as error:
            logger.warning("could not start a checkpoint, will retry: %s", error)
            return
        self._checkpoint(connection)
        connection.close(True)

    def _checkpoint(self, connection: apsw.Connection) -> None:
        """Checkpoints the frames that no reader needs."""
        try:
            in_log, moved = connection.wal_checkpoint()
        except (apsw.BusyError, apsw.FullError) as error:
            # The file could not grow: nothing was dropped, and nothing counts as checkpointed.
            logger.warning("a checkpoint failed, will retry: %s", error)
        except apsw.Error as error:
            _stop_everything(error)
        else:
            self._log_pages, self._checkpointed_pages = in_log, moved

    def close(self) -> None:
        self._threads.shutdown()


def _stop_everything(error: apsw.Error) -> NoReturn:
    logger.critical(
        "a checkpoint failed (%s): restarting all processes, to checkpoint the log again from its "
        "first frame",
        error,
    )
    exit_at_once(EXIT_RESTART_ALL)
