"""Restoring a point to a data directory.

A point is restored to a subdirectory, which is not a store. When that is complete and durable, its
contents are moved to their places. A server does not start where this was interrupted.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from etagere.backup.files import Files
from etagere.backup.ledgers import write_ledger
from etagere.backup.packs import Damaged, PackReader
from etagere.backup.points import Point
from etagere.backup.repository import CannotBackUp, Repository
from etagere.backup.segments import SegmentExtents, find_extent, read_extents
from etagere.bodies.contents import COUNTED_DEAD, EXTENTS, SEGMENTS, UNCOUNTED_DEAD
from etagere.bodies.files import DIRECTORY_NAME, segment_path
from etagere.engine import ledger, reserve
from etagere.engine.snapshots import LedgerFile, Progress
from etagere.model.bodies import Extent, SegmentState

PARTIAL_NAME = "restore.partial"
"""The subdirectory that a point is restored to,"""
INSTALLING_NAME = "restore.installing"
"""and its name while its contents are moved to their places."""
_LEDGER_NAMES = tuple(f"{ledger.DATABASE_NAME}{suffix}" for suffix in ("-shm", "-wal", ""))


class NotAStore(CannotBackUp):
    """A point was not completely restored to a directory."""


def is_interrupted(directory: Path) -> bool:
    """Returns whether a restoration was interrupted so that the directory is not a store."""
    if (directory / INSTALLING_NAME).exists():
        return True
    return (directory / PARTIAL_NAME).exists() and not ledger.database_path(directory).exists()


def require_store(directory: Path) -> None:
    """Raises `NotAStore` where a restoration was interrupted."""
    if is_interrupted(directory):
        raise NotAStore(
            f"{directory} is not a store: the restoration of a backup was interrupted. Run "
            "`etagere restore` again."
        )


def require_target(directory: Path, *, replace: bool) -> None:
    """Raises `CannotBackUp` unless a point may be restored to a directory: it is missing or empty,
    an interrupted restoration left it, or it is a store that is to be replaced."""
    try:
        names = {path.name for path in directory.iterdir()}
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise CannotBackUp(f"{directory} is not a directory") from None
    except OSError as error:
        raise CannotBackUp(f"{directory} cannot be read: {error.strerror}") from error
    if not names - {"lock", "lost+found"} or is_interrupted(directory):
        return
    if ledger.DATABASE_NAME not in names:
        raise CannotBackUp(f"{directory} is neither empty nor a data directory")
    if not replace:
        raise CannotBackUp(
            f"{directory} is in use as a data directory; choose another one, or use --replace to "
            "remove what it contains"
        )


def restore(
    repository: Repository,
    point: Point,
    directory: Path,
    progress: Progress,
    files: Files | None = None,
) -> None:
    """Restores a point to a directory that is locked and may be used. Raises `Damaged` if a part of
    the point is missing or damaged, and `OSError`; then the directory contains what it did
    before."""
    files = files or Files()
    partial, installing = directory / PARTIAL_NAME, directory / INSTALLING_NAME
    was_interrupted = is_interrupted(directory)
    _remove(files, partial)
    if installing.exists():
        # What is left of the old store must not look like one.
        _remove_store(files, directory)
    files.make_directory(partial)
    _remove(files, installing)
    try:
        _write(files, repository, point, partial, progress)
    except BaseException:
        if not was_interrupted:
            _remove(files, partial)
        raise
    _install(files, directory, partial, installing)


def _write(
    files: Files, repository: Repository, point: Point, directory: Path, progress: Progress
) -> None:
    folder = directory / DIRECTORY_NAME
    files.make_directory(folder)
    path = ledger.database_path(directory)
    write_ledger(repository, point.ledger, path, progress, files)
    with LedgerFile(path) as file:
        _SegmentWriter(files, repository, point, directory, file).run(progress)
    files.sync_directory(folder)
    files.sync_directory(directory)


class _SegmentWriter:
    """Writes the segments of a point to a directory."""

    def __init__(
        self,
        files: Files,
        repository: Repository,
        point: Point,
        directory: Path,
        file: LedgerFile,
    ) -> None:
        self._files = files
        self._repository = repository
        self._directory = directory
        self._ledger = file
        self._uses = {segment.number: segment for segment in point.segments}
        self._lost = {(lost.segment, lost.offset) for lost in point.lost}
        self._total_bytes = point.extent_bytes
        self._done_bytes = 0

    def run(self, progress: Progress) -> None:
        with_extents: set[int] = set()
        for segment in read_extents(self._ledger):
            with_extents.add(segment.number)
            self._write(segment, progress)
        for (number,), record in self._ledger.rows(SEGMENTS):
            if number not in with_extents and record.state is not SegmentState.RETIRED:
                self._write(SegmentExtents(number, record.owner, []), progress)

    def _write(self, segment: SegmentExtents, progress: Progress) -> None:
        """Writes a segment. Its dead space becomes holes."""
        path = segment_path(self._directory, segment.number)
        descriptor = self._files.create(path)
        try:
            self._files.truncate(descriptor, self._length(segment.number))
            with ExitStack() as opened:
                use = self._uses.get(segment.number)
                packs = [
                    opened.enter_context(self._repository.open_segment_pack(pack))
                    for pack in (use.packs if use is not None else ())
                ]
                for offset, extent in segment.extents:
                    if (segment.number, offset) not in self._lost:
                        self._write_extent(descriptor, packs, segment.number, offset, extent)
                    self._done_bytes += extent.length
                    progress("segments", self._done_bytes, self._total_bytes)
            self._files.sync(descriptor)
        finally:
            os.close(descriptor)

    def _write_extent(
        self, descriptor: int, packs: list[PackReader], number: int, offset: int, extent: Extent
    ) -> None:
        for pack in packs:
            block = find_extent(pack.index, offset, extent)
            if block is not None:
                at = offset
                for part in pack.parts(block):
                    self._files.write(descriptor, part, at)
                    at += len(part)
                return
        directory = self._repository.directory
        raise Damaged(f"{directory} lacks {extent.length} bytes of segment {number} at {offset}")

    def _length(self, number: int) -> int:
        """Returns the length of a segment: behind its last extent, dead or alive, if the process
        that wrote it had not sealed it. It is sealed when a server runs."""
        segment = self._ledger.get(SEGMENTS, (number,))
        ends = [segment.length if segment is not None else 0]
        last = self._ledger.last(EXTENTS, (number,))
        if last is not None:
            ends.append(last[0][1] + last[1].length)
        for collection in (UNCOUNTED_DEAD, COUNTED_DEAD):
            dead = self._ledger.last(collection, (number,))
            if dead is not None:
                ends.append(dead[0][1] + dead[1].length)
        return max(ends)


def _install(files: Files, directory: Path, partial: Path, installing: Path) -> None:
    """Moves a restored store to its place. Until this ends, the directory is not a store."""
    files.rename(partial, installing)
    files.sync_directory(directory)
    _remove_store(files, directory)
    for name in (DIRECTORY_NAME, ledger.DATABASE_NAME):
        files.rename(installing / name, directory / name)
    files.sync_directory(directory)
    files.remove_directory(installing)
    files.sync_directory(directory)


def _remove_store(files: Files, directory: Path) -> None:
    for name in (*_LEDGER_NAMES, DIRECTORY_NAME, reserve.RESERVE_NAME):
        _remove(files, directory / name)
    files.sync_directory(directory)


def _remove(files: Files, path: Path) -> None:
    """Removes a file, or a directory with its contents."""
    if path.is_dir() and not path.is_symlink():
        for entry in list(path.iterdir()):
            _remove(files, entry)
        files.remove_directory(path)
    else:
        files.unlink(path)
