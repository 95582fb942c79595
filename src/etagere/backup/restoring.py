"""Restoring a point to a data directory.

A point is restored to a subdirectory, which is not a store. When that is complete and durable, it
gets a copy of the manifest, and its contents are moved to their places. A server does not start
where this was interrupted. If the same point is restored again, a complete copy is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from etagere.backup import points
from etagere.backup.files import Files
from etagere.backup.ledgers import write_ledger
from etagere.backup.packs import BackupDamaged, PackReader
from etagere.backup.points import Point
from etagere.backup.repository import CannotBackUp, Repository
from etagere.backup.segments import SegmentExtents, find_extent, read_extents
from etagere.bodies.contents import COUNTED_DEAD, EXTENTS, SEGMENTS, UNCOUNTED_DEAD
from etagere.bodies.segment_files import DIRECTORY_NAME, segment_path
from etagere.config import MIB
from etagere.engine import ledger, reserve
from etagere.engine.snapshots import LedgerFile, Progress
from etagere.model.bodies import Extent, SegmentState

PARTIAL_NAME = "restore.partial"
"""The subdirectory that a point is restored to."""
INSTALLING_NAME = "restore.installing"
"""The name of that subdirectory while its contents are moved to their places. It is empty in the
end."""
_MANIFEST_NAME = "point.json"
"""The manifest in it, added when the rest is complete, and removed when that is installed."""
_COPY_BYTES = 1 * MIB
_LEDGER_NAMES = tuple(f"{ledger.DATABASE_NAME}{suffix}" for suffix in ("-shm", "-wal", ""))


class NotAStore(CannotBackUp):
    """A point was not completely restored to a directory."""


def is_interrupted(directory: Path) -> bool:
    """Returns whether a restoration was interrupted so that the directory is not a store."""
    if _is_installing(directory):
        return True
    return (directory / PARTIAL_NAME).exists() and not ledger.database_path(directory).exists()


def _is_installing(directory: Path) -> bool:
    installing = directory / INSTALLING_NAME
    return installing.is_dir() and any(installing.iterdir())


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
    """Restores a point to a directory that is locked and may be used. Raises `BackupDamaged` if a
    part of the point is missing or damaged, and `OSError`; then the directory contains what it did
    before."""
    files = files or Files()
    partial, installing = directory / PARTIAL_NAME, directory / INSTALLING_NAME
    if _is_complete(installing, point):
        _finish(files, directory, installing)
        return
    if not _is_complete(partial, point):
        was_interrupted = is_interrupted(directory)
        _discard(files, partial)
        files.make_directory(partial)
        if _is_installing(directory):
            _discard_manifest(files, installing)
            # The rest of the old store must not be taken for a complete store.
            _remove_store(files, directory)
            _remove(files, installing)
            files.sync_directory(directory)
        try:
            _write(files, repository, point, partial, progress)
        except BaseException:
            if not was_interrupted:
                _remove(files, partial)
            raise
    files.rename(partial, installing)
    files.sync_directory(directory)
    _finish(files, directory, installing)


def _is_complete(directory: Path, point: Point) -> bool:
    """Returns whether a subdirectory was a complete copy of a point, of which a part may have been
    moved to its place."""
    try:
        return (directory / _MANIFEST_NAME).read_bytes() == points.encode(point)
    except OSError:
        return False


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
    _write_manifest(files, point, directory / _MANIFEST_NAME)
    files.sync_directory(directory)


def _write_manifest(files: Files, point: Point, path: Path) -> None:
    descriptor = files.create(path)
    try:
        files.write(descriptor, points.encode(point), 0)
        files.sync(descriptor)
    finally:
        os.close(descriptor)


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
        self._refs = {segment.number: segment for segment in point.segments}
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
        self._write_origins()

    def _write_origins(self) -> None:
        """Writes extents that the collector has moved to their former places too, in segments that
        it had not retired yet: that is where readers look for them."""
        stays: dict[int, bool] = {}
        written: set[int] = set()
        for (number, offset), extent in self._ledger.rows(EXTENTS):
            if extent.origin is None or (number, offset) in self._lost:
                continue
            origin, at = extent.origin
            if origin not in stays:
                record = self._ledger.get(SEGMENTS, (origin,))
                stays[origin] = record is not None and record.state is not SegmentState.RETIRED
            if stays[origin]:
                self._copy((number, offset), (origin, at), extent.length)
                written.add(origin)
        for origin in written:
            with self._opened(origin) as descriptor:
                self._files.sync(descriptor)

    def _copy(self, source: tuple[int, int], target: tuple[int, int], length: int) -> None:
        """Copies bytes between two segments that are written."""
        with self._opened(source[0]) as reading, self._opened(target[0]) as writing:
            done = 0
            while done < length:
                data = os.pread(reading, min(_COPY_BYTES, length - done), source[1] + done)
                if not data:
                    raise BackupDamaged(f"segment {source[0]} ends at {source[1] + done}")
                self._files.write(writing, data, target[1] + done)
                done += len(data)

    @contextmanager
    def _opened(self, number: int) -> Iterator[int]:
        path = segment_path(self._directory, number)
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _write(self, segment: SegmentExtents, progress: Progress) -> None:
        """Writes a segment. Its dead space becomes holes."""
        path = segment_path(self._directory, segment.number)
        descriptor = self._files.create(path)
        try:
            self._files.truncate(descriptor, self._length(segment.number))
            with ExitStack() as opened:
                ref = self._refs.get(segment.number)
                packs = [
                    opened.enter_context(self._repository.open_segment_pack(pack))
                    for pack in (ref.packs if ref is not None else ())
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
        raise BackupDamaged(
            f"{directory} lacks {extent.length} bytes of segment {number} at {offset}"
        )

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


def _finish(files: Files, directory: Path, installing: Path) -> None:
    """Moves a complete copy, or what is left of it, to its place. Until this ends, the directory is
    not a store."""
    if (installing / DIRECTORY_NAME).exists():
        # Nothing was moved yet.
        _remove_store(files, directory)
    for name in (DIRECTORY_NAME, ledger.DATABASE_NAME):
        if (installing / name).exists():
            files.rename(installing / name, directory / name)
        # The ledger must not be in its place before the segments are.
        files.sync_directory(directory)
    _discard_manifest(files, installing)
    files.remove_directory(installing)
    files.sync_directory(directory)


def _discard(files: Files, path: Path) -> None:
    """Removes a subdirectory, whose manifest must not remain without the rest."""
    _discard_manifest(files, path)
    _remove(files, path)


def _discard_manifest(files: Files, path: Path) -> None:
    if (path / _MANIFEST_NAME).exists():
        files.unlink(path / _MANIFEST_NAME)
        files.sync_directory(path)


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
