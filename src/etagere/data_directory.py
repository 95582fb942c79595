"""The data directory of a server: which process may use it, and what it contains."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from etagere import directories
from etagere.backup import restoring
from etagere.bodies import collector, segment_files
from etagere.config import Config
from etagere.coordination import local as coordination
from etagere.engine import copy_lock, groups, ledger, loading, reserve
from etagere.engine.timeline import Timeline
from etagere.engine.writer import SOCKET_NAME
from etagere.jobs import health, purging
from etagere.jobs.health import server_status
from etagere.opens import remote as opens_socket
from etagere.processes import STOP_SECONDS_MAX
from etagere.tls import DIRECTORY_NAME as TLS_DIRECTORY_NAME

logger = logging.getLogger(__name__)

# A running server that has not begun to stop by then is taken to be in use.
_IN_USE_SECONDS = 5.0
# A server that is stopping may use the whole grace period of its processes. The children of a
# killed server release the directory shortly after that.
_CLAIM_SECONDS_MAX = STOP_SECONDS_MAX + 5.0
_ANSWER_SECONDS_MAX = 1.0
NODE_ID_NAME = "node-id"
"""The file by which a cluster recognizes a node after a restart."""
_OWN_NAMES = (
    directories.LOCK_NAME,
    groups.LOCK_NAME,
    copy_lock.LOCK_NAME,
    coordination.lock_name(collector.TASK),
    coordination.lock_name(purging.TASK),
    SOCKET_NAME,
    opens_socket.SOCKET_NAME,
    reserve.RESERVE_NAME,
    *(f"{ledger.DATABASE_NAME}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")),
    segment_files.DIRECTORY_NAME,
    coordination.DIRECTORY_NAME,
    health.DIRECTORY_NAME,
    NODE_ID_NAME,
    TLS_DIRECTORY_NAME,
)
"""The files and directories in a data directory."""


class CannotUse(Exception):
    """A server cannot use something that it needs; the message says why, in one line."""


class DirectoryInUse(CannotUse):
    """Another process uses the data directory."""


@contextmanager
def raising_cannot_use(directory: Path) -> Iterator[None]:
    """Turns errors of the ledger and the file system into `CannotUse`."""
    try:
        yield
    except (ledger.NotALedger, ledger.SchemaTooNew, restoring.NotAStore) as error:
        raise CannotUse(str(error)) from error
    except ledger.DatabaseError as error:
        raise CannotUse(f"the ledger in {directory} cannot be used: {error}") from error
    except (FileExistsError, NotADirectoryError) as error:
        raise CannotUse(f"{error.filename} is not a directory") from error
    except OSError as error:
        path = error.filename or directory
        raise CannotUse(f"{path} cannot be used: {error.strerror}") from error


def claim(directory: Path, *, may_be_incomplete: bool = False) -> int:
    """Locks the data directory for as long as the returned descriptor is open in this process or a
    child. Raises `CannotUse` if a restoration or a migration to it was interrupted, unless
    `may_be_incomplete` is set."""
    with raising_cannot_use(directory):
        if not may_be_incomplete:
            restoring.require_store(directory)
        directories.make(directory)
        descriptor = directories.open_private(directory / directories.LOCK_NAME)
    began = time.monotonic()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            waited = time.monotonic() - began
            if waited > _CLAIM_SECONDS_MAX or (waited > _IN_USE_SECONDS and _is_in_use(directory)):
                os.close(descriptor)
                raise DirectoryInUse(f"{directory} is in use by another etagere process") from None
            time.sleep(0.02)
    if not may_be_incomplete and restoring.is_interrupted(directory):
        os.close(descriptor)
        raise DirectoryInUse(f"a backup was being restored to {directory}; try again")
    if not may_be_incomplete and loading.is_incomplete(directory):
        os.close(descriptor)
        raise CannotUse(
            f"{directory} is not a store: a migration was interrupted. Run `etagere migrate` again."
        )
    # Files from older versions, or copied ones, may be readable by other users.
    for name in _OWN_NAMES:
        directories.make_private(directory / name)
    return descriptor


def warn_if_accessible_to_others(directory: Path) -> None:
    """Logs a warning if other users can access the directory; it may be shared on purpose."""
    if not directories.is_private(directory):
        logger.warning("other users can access %s; restrict it with `chmod 700`", directory)


def _is_in_use(directory: Path) -> bool:
    """Returns whether a server runs in the directory and is not stopping."""
    status = server_status(directory, _ANSWER_SECONDS_MAX)
    return status is not None and not status.stopping


@contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Locks the data directory within a block."""
    descriptor = claim(directory)
    try:
        yield
    finally:
        os.close(descriptor)


def read_timeline(directory: Path, config: Config) -> Timeline:
    """Returns the times in the ledger; a server may be running."""
    connection = ledger.open_for_reading(directory, config)
    try:
        stored = ledger.stored_timeline(connection)
    finally:
        connection.close()
    if stored is None:
        raise ledger.NotALedger(f"the ledger in {directory} has no timeline")
    return stored
