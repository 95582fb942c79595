"""The directory of a backup: its points, their packs, its lock.

etagere-backup.lock   marks the directory, and is locked while it is in use
points/NAME.json      the manifests; a point exists once its manifest does
ledger/NAME.pack      chunks of ledgers
segments/NUMBER-OWNER-N.pack
                      extents of a segment; the process that wrote the segment is part of its
                      identity, because a restored store may use its number again
temporary/            what is being written
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from etagere import directories
from etagere.backup import points
from etagere.backup.files import Files
from etagere.backup.packs import BackupDamaged, PackReader, PackRef
from etagere.backup.points import Point

LOCK_NAME = "etagere-backup.lock"
_PACK_SUFFIX = ".pack"
_POINT_SUFFIX = ".json"
_IGNORED = {LOCK_NAME, "lost+found"}


class CannotBackUp(Exception):
    """A backup cannot be used; the message says why, in one line."""


class NoSpace(CannotBackUp):
    """There is no room for a new point."""


class Repository:
    """An existing backup."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self.directory = directory
        self.files = files or Files()
        self.ledger = directory / "ledger"
        self.segments = directory / "segments"
        self.temporary = directory / "temporary"
        self._points = directory / "points"

    # Points

    def points(self) -> tuple[list[Point], list[BackupDamaged]]:
        """Returns the points in the order in which they were taken, and what is wrong with
        manifests that cannot be read."""
        found: list[Point] = []
        damages: list[BackupDamaged] = []
        for name in _names(self._points, _POINT_SUFFIX):
            try:
                found.append(points.read(self._point_path(name)))
            except BackupDamaged as damage:
                damages.append(damage)
        return sorted(found, key=lambda point: point.sequence), damages

    def point_names(self) -> list[str]:
        """Returns the names of all points, including those with damaged manifests."""
        return _names(self._points, _POINT_SUFFIX)

    def used_names(self) -> set[str]:
        """Returns the names that a new point must not have: those of points, and of ledger packs,
        which remain when their point is removed if later ones use them."""
        return {*self.point_names(), *_names(self.ledger, _PACK_SUFFIX)}

    def find(self, name: str) -> Point:
        if name not in self.point_names():
            raise CannotBackUp(f"{self.directory} has no point {name}; see --list")
        return points.read(self._point_path(name))

    def add(self, point: Point) -> None:
        """Adds a point, whose packs are in place. It exists, durably, when this returns."""
        for folder in (self.ledger, self.segments):
            self.files.sync_directory(folder)
        path = self.temporary / "point"
        descriptor = self.files.create(path)
        try:
            self.files.write(descriptor, points.encode(point), 0)
            self.files.sync(descriptor)
        finally:
            os.close(descriptor)
        self.files.rename(path, self._point_path(point.name))
        self.files.sync_directory(self._points)

    def remove(self, names: Iterable[str]) -> None:
        """Removes points, and then what only they used."""
        for name in names:
            self.files.unlink(self._point_path(name))
        # Before the packs: after a crash no point may lack one.
        self.files.sync_directory(self._points)
        self.sweep()

    def superseded(self, kept_count: int) -> list[str]:
        """Returns the names of the points that are not to be kept besides a new one. The last point
        that can be restored completely is never among them."""
        found, damages = self.points()
        kept = found[-max(kept_count - 1, 1) :]
        if damages or not any(map(self._is_restorable, reversed(kept))):
            return []
        return [point.name for point in found[: -len(kept)]]

    def _is_restorable(self, point: Point) -> bool:
        """Returns whether a point lacks nothing, as far as the indexes of its packs tell."""
        try:
            for ref in point.ledger.packs:
                with self.open_ledger_pack(ref):
                    pass
            for ref in (ref for segment in point.segments for ref in segment.packs):
                with self.open_segment_pack(ref):
                    pass
        except BackupDamaged:
            return False
        return not point.lost

    def _point_path(self, name: str) -> Path:
        return self._points / f"{name}{_POINT_SUFFIX}"

    # Packs

    def prepare(self) -> None:
        """Creates what is missing of the directory, and removes what an interrupted backup left,
        except for packs of segments, which the next one can use."""
        for folder in (self._points, self.ledger, self.segments, self.temporary):
            self.files.make_directory(folder)
        # An interrupted backup may have created them.
        self.files.sync_directory(self.directory)
        self.clear_temporary()
        self._sweep_ledger()

    def clear_temporary(self) -> None:
        for path in list(self.temporary.iterdir()):
            self.files.unlink(path)

    def ledger_pack(self, name: str) -> Path:
        return self.ledger / f"{name}{_PACK_SUFFIX}"

    def segment_pack(self, name: str) -> Path:
        return self.segments / f"{name}{_PACK_SUFFIX}"

    def segment_packs(self) -> dict[str, list[str]]:
        """Returns the names of the packs of each segment by its identity."""
        found: dict[str, list[str]] = {}
        for name in _names(self.segments, _PACK_SUFFIX):
            found.setdefault(name.rpartition("-")[0], []).append(name)
        return found

    def sweep(self) -> None:
        """Removes packs that no point uses. Does nothing if a manifest cannot be read: the packs of
        that point are not known."""
        self._sweep_ledger()
        found, damages = self.points()
        if not damages:
            used = [ref for point in found for segment in point.segments for ref in segment.packs]
            self._sweep(self.segments, used)

    def _sweep_ledger(self) -> None:
        found, damages = self.points()
        if not damages:
            self._sweep(self.ledger, [ref for point in found for ref in point.ledger.packs])

    def _sweep(self, folder: Path, used: Iterable[PackRef]) -> None:
        kept = {ref.name for ref in used}
        for name in _names(folder, _PACK_SUFFIX):
            if name not in kept:
                self.files.unlink(folder / f"{name}{_PACK_SUFFIX}")

    def open_ledger_pack(self, ref: PackRef) -> PackReader:
        return _open_pack(self.ledger_pack(ref.name), ref)

    def open_segment_pack(self, ref: PackRef) -> PackReader:
        return _open_pack(self.segment_pack(ref.name), ref)


def segment_identity(number: int, owner: bytes) -> str:
    return f"{number:08x}-{owner.hex()}"


@contextlib.contextmanager
def locked_for_writing(directory: Path, files: Files | None = None) -> Iterator[Repository]:
    """Locks a backup, which is created if the directory is empty or missing."""
    try:
        directories.make(directory)
        path = directory / LOCK_NAME
        if not path.exists() and {entry.name for entry in directory.iterdir()} - _IGNORED:
            raise CannotBackUp(f"{directory} is neither empty nor a backup")
        descriptor = directories.open_private(path)
    except (FileExistsError, NotADirectoryError) as error:
        raise CannotBackUp(f"{error.filename} is not a directory") from error
    except OSError as error:
        raise CannotBackUp(
            f"{error.filename or directory} cannot be used: {error.strerror}"
        ) from error
    try:
        _lock(descriptor, directory, fcntl.LOCK_EX)
        yield Repository(directory, files)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked_for_reading(directory: Path) -> Iterator[Repository]:
    """Keeps an existing backup from being changed. It may be on a medium that cannot be
    written."""
    try:
        descriptor = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise CannotBackUp(f"{directory} is not a backup: it has no file {LOCK_NAME}") from None
    except OSError as error:
        raise CannotBackUp(f"{error.filename} cannot be read: {error.strerror}") from error
    try:
        _lock(descriptor, directory, fcntl.LOCK_SH)
        yield Repository(directory)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, directory: Path, kind: int) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CannotBackUp(f"another etagere process uses the backup {directory}") from None


def _open_pack(path: Path, ref: PackRef) -> PackReader:
    reader = PackReader(path)
    with contextlib.ExitStack() as on_failure:
        on_failure.push(reader)
        reader.require(ref)
        on_failure.pop_all()
    return reader


def _names(folder: Path, suffix: str) -> list[str]:
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CannotBackUp(f"{folder} cannot be read: {error.strerror}") from error
    return sorted(name.removesuffix(suffix) for name in names if name.endswith(suffix))
