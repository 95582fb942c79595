"""Taking a point: a consistent copy of the ledger, and the extents that it refers to."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Container, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import etagere
from etagere.backup import points, restoring
from etagere.backup.files import Files
from etagere.backup.ledgers import add_ledger
from etagere.backup.points import LedgerRef, Point, SegmentRef
from etagere.backup.repository import CannotBackUp, NoSpace, Repository, locked_for_writing
from etagere.backup.segments import SegmentCopier, compare, read_extents
from etagere.bodies.audit.snapshot import CannotCheck, require_ledger
from etagere.config import MIB, Config
from etagere.coordination.interface import Pin
from etagere.coordination.local import LocalCoordinator
from etagere.engine import ledger
from etagere.engine.snapshots import LedgerFile, LogTooLong, OutOfSpace, Progress, copy_ledger

FREE_BYTES_MIN = 256 * MIB
"""What a backup leaves free on the disk of the data directory."""
_NAME_FORMAT = "%Y%m%dT%H%M%SZ"
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}


class _Extents(NamedTuple):
    """The extents of a point, in the backup."""

    segments: tuple[SegmentRef, ...]
    extents: int
    extent_bytes: int


def take(
    directory: Path,
    target: Path,
    progress: Progress,
    *,
    full: bool = False,
    files: Files | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Point:
    """Adds a point to the backup in `target`; with `full`, one that uses nothing of earlier points.
    Raises `CannotBackUp`, `NoSpace` if the disk is full; then all earlier points are as they
    were."""
    try:
        require_ledger(directory)
    except CannotCheck as error:
        raise CannotBackUp(str(error)) from error
    _require_apart(directory, target)
    with locked_for_writing(target, files) as repository:
        taker = _PointTaker(directory, repository, progress, now, full=full)
        try:
            repository.prepare()
            point = taker.run()
            repository.clear_temporary()
            repository.sweep()
            return point
        except (ledger.NotALedger, ledger.SchemaTooNew, LogTooLong) as error:
            raise CannotBackUp(str(error)) from error
        except OutOfSpace as error:
            raise NoSpace(f"no backup was taken: {target} has no room for the ledger") from error
        except ledger.DatabaseError as error:
            raise CannotBackUp(f"the ledger in {directory} was not copied: {error}") from error
        except OSError as error:
            # An error without a file name comes from a write to the backup.
            where = error.filename or target
            kind = NoSpace if error.errno in _NO_SPACE else CannotBackUp
            raise kind(f"no backup was taken: {where}: {error.strerror}") from error
        finally:
            # Otherwise the next backup does it.
            with contextlib.suppress(OSError):
                repository.clear_temporary()


class _PointTaker:
    """Takes one point."""

    def __init__(
        self,
        directory: Path,
        repository: Repository,
        progress: Progress,
        now: Callable[[], datetime],
        *,
        full: bool,
    ) -> None:
        self._directory = directory
        self._repository = repository
        self._progress = progress
        self._now = now
        self._full = full
        self._is_same_disk = directory.stat().st_dev == repository.directory.stat().st_dev

    def run(self) -> Point:
        repository = self._repository
        known, _ = repository.points()
        last = known[-1] if known else None
        sequence = last.sequence + 1 if last is not None else 1
        taken = self._now()
        name = _name(taken, repository.used_names())
        copy = repository.temporary / ledger.DATABASE_NAME
        copier = SegmentCopier(repository, self._directory)
        database = ledger.database_path(self._directory)
        coordinator = LocalCoordinator(self._directory)
        try:
            # Like every reader, a backup pins before its snapshot.
            with _not_replaced(self._directory), coordinator.pin() as pin:
                self._require_space(database.stat().st_size)
                copy_ledger(self._directory, copy, Config(), self._progress)
                with LedgerFile(copy) as file:
                    schema = file.schema
                    extents = self._copy_extents(file, copier, pin)
        finally:
            coordinator.close()
        stored, added = self._add_ledger(copy, name, None if self._full else last)
        point = Point(
            points.VERSION,
            name,
            sequence,
            _text(taken),
            _text(self._now()),
            etagere.__version__,
            schema,
            stored,
            *extents,
            added + copier.added_bytes,
            tuple(copier.lost),
        )
        repository.add(point)
        return point

    def _copy_extents(self, file: LedgerFile, copier: SegmentCopier, pin: Pin) -> _Extents:
        """Copies the extents that the backup lacks. First the pin is narrowed to their segments."""
        repository = self._repository
        names = {} if self._full else repository.segment_packs()
        missing: dict[int, int] = {}
        for segment in read_extents(file):
            copied = compare(repository, segment, names.get(segment.identity, []))
            if copied.missing:
                missing[segment.number] = copied.missing_bytes
        pin.narrow(missing)
        existing = repository.segment_packs()
        refs: list[SegmentRef] = []
        done, total = 0, sum(missing.values())
        count = length = 0
        for segment in read_extents(file):
            self._require_space(missing.get(segment.number, 0))
            copied = compare(repository, segment, names.get(segment.identity, []))
            refs.append(copier.copy(segment, copied, existing.get(segment.identity, [])))
            pin.release(segment.number)
            count += len(segment.extents)
            length += sum(extent.length for _, extent in segment.extents)
            done += missing.get(segment.number, 0)
            self._progress("segments", done, total)
        return _Extents(tuple(refs), count, length)

    def _add_ledger(self, copy: Path, name: str, last: Point | None) -> tuple[LedgerRef, int]:
        self._require_space(0)
        return add_ledger(self._repository, copy, name, last, self._progress)

    def _require_space(self, needed: int) -> None:
        """Raises `OSError` if this many bytes would fill the disk that a server needs."""
        room = os.statvfs(self._repository.directory)
        if self._is_same_disk and room.f_bavail * room.f_frsize - needed < FREE_BYTES_MIN:
            text = f"less than {FREE_BYTES_MIN // MIB} MiB would be free, which the server may need"
            raise OSError(errno.ENOSPC, text)


@contextlib.contextmanager
def _not_replaced(directory: Path) -> Iterator[None]:
    """Raises `CannotBackUp` if a point is restored to the data directory meanwhile."""
    database = ledger.database_path(directory)
    # As long as it is open, no other file is taken for it. Closing it releases no lock of SQLite.
    opened = os.open(database, os.O_PATH | os.O_CLOEXEC)
    try:
        restoring.require_store(directory)
        yield
        restoring.require_store(directory)
        if not os.path.samestat(os.fstat(opened), database.stat()):
            raise CannotBackUp(f"a backup was restored to {directory} meanwhile")
    finally:
        os.close(opened)


def _require_apart(directory: Path, target: Path) -> None:
    data, backup = directory.resolve(), target.resolve()
    if data == backup or data in backup.parents or backup in data.parents:
        raise CannotBackUp(f"{target} and the data directory {directory} contain each other")


def _name(taken: datetime, names: Container[str]) -> str:
    """Returns a new name for a point: its time, and a number if there is one of that second."""
    name, number = taken.strftime(_NAME_FORMAT), 1
    unique = name
    while unique in names:
        number += 1
        unique = f"{name}-{number}"
    return unique


def _text(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
