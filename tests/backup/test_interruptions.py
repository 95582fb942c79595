"""A backup or a restoration that is interrupted at any system call, by an error or by `kill -9`."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from etagere.backup.files import Files
from etagere.backup.points import Point
from etagere.backup.repository import CannotBackUp, locked_for_reading
from etagere.backup.restoring import is_interrupted, require_target, restore
from etagere.bodies.audit.walk import check
from etagere.engine.ledger import database_path
from tests.backup.faulty_files import FaultyFiles, failing, kill, survives
from tests.backup.stores import back_up, change, no_progress, restored, size_of, verified
from tests.bodies.stores import CONFIG, build, expected, read_all

FAULTS = {"ENOSPC": failing(errno.ENOSPC), "EIO": failing(errno.EIO), "killed": kill}
_NAMES_OF_A_STORE = {"ledger.sqlite3", "segments"}


class _Stores:
    """A store, a later state of it, and a backup with a point of the first."""

    def __init__(self, directory: Path) -> None:
        self.first, self.second = directory / "first", directory / "second"
        self.backup = directory / "backup"
        asyncio.run(build(self.first))
        shutil.copytree(self.first, self.second)
        asyncio.run(change(self.second, {"new": 20_000}, deletes=("many", "many-copy")))
        self.point = back_up(self.first, self.backup)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> _Stores:
    return _Stores(tmp_path_factory.mktemp("stores"))


def _interrupted_backup(stores: _Stores, backup: Path, nth: int, strike: str) -> list[str]:
    """Takes a backup that is interrupted; returns the names of the points then."""
    files = FaultyFiles(nth, FAULTS[strike])

    def run(files: Files) -> Point:
        return back_up(stores.second, backup, files=files)

    if strike == "killed":
        survives(run, files)
    else:
        with contextlib.suppress(CannotBackUp):
            run(files)
    with locked_for_reading(backup) as repository:
        return repository.point_names()


@pytest.mark.parametrize(
    ("strike", "step"),
    [
        ("ENOSPC", 2),
        ("killed", 3),
        pytest.param("EIO", 1, marks=pytest.mark.long),
        pytest.param("killed", 1, marks=pytest.mark.long),
    ],
)
def test_an_interrupted_backup_leaves_earlier_points_usable(
    stores: _Stores, tmp_path: Path, strike: str, step: int
) -> None:
    counting = FaultyFiles()
    complete = shutil.copytree(stores.backup, tmp_path / "complete")
    back_up(stores.second, complete, files=counting)
    calls = len(counting.calls)
    assert calls > 30
    added = 0
    # Each fault meets what the one before has left. The data directory is not changed meanwhile.
    backup = shutil.copytree(stores.backup, tmp_path / "backup")
    for nth in range(1, calls + 1, step):
        names = _interrupted_backup(stores, backup, nth, strike)
        assert stores.point.name in names
        found = verified(backup)
        assert found.is_clean, (strike, nth, counting.calls[nth - 1])
        if len(names) > 1:
            # The manifest was there, so the point exists, and is complete.
            added += 1
            shutil.rmtree(backup)
            shutil.copytree(stores.backup, backup)
    assert 0 < added < calls / step / 2
    assert _interrupted_backup(stores, backup, 12, strike) == [stores.point.name]
    point = back_up(stores.second, backup)
    assert not list((backup / "temporary").iterdir())
    # Nothing is left of what was interrupted.
    assert abs(size_of(backup) - size_of(complete)) < 200
    restored(backup, stores.point.name, tmp_path / "old")
    restored(backup, point.name, tmp_path / "new")


def test_a_backup_continues_with_the_segments_that_were_copied(
    stores: _Stores, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    counting = FaultyFiles()
    point = back_up(stores.first, tmp_path / "complete", files=counting)
    renames = [at for at, (call, _) in enumerate(counting.calls, 1) if call == "rename"]
    nth = renames[2]  # two segments have been copied
    with pytest.raises(CannotBackUp):
        back_up(stores.first, backup, files=FaultyFiles(nth, failing(errno.ENOSPC)))
    copied = sum(path.stat().st_size for path in (backup / "segments").iterdir())
    assert copied > 100_000
    assert back_up(stores.first, backup).added_bytes == point.added_bytes - copied
    assert verified(backup).is_clean


def test_a_point_exists_only_when_all_of_it_is_durable(stores: _Stores, tmp_path: Path) -> None:
    """No file is renamed before it was synced, and no manifest before the names of the packs."""
    files = FaultyFiles()
    back_up(stores.first, tmp_path / "backup", files=files)
    unsynced: set[str] = set()
    renamed: set[str] = set()
    manifests = 0
    for call, name in files.calls:
        path = Path(name)
        if call == "write":
            unsynced.add(name)
        elif call == "sync":
            unsynced.discard(name)
        elif call == "sync_directory":
            renamed.discard(path.name)
        elif call == "rename":
            assert not unsynced
            if path.parent.name == "points":
                manifests += 1
                assert not renamed
            renamed.add(path.parent.name)
    assert manifests == 1
    assert not renamed


@pytest.mark.parametrize("replaces", [False, True], ids=["new", "replace"])
@pytest.mark.parametrize(
    ("strike", "step"),
    [
        ("EIO", 3),
        ("killed", 2),
        pytest.param("EIO", 1, marks=pytest.mark.long),
        pytest.param("killed", 1, marks=pytest.mark.long),
    ],
)
def test_an_interrupted_restoration_is_no_store(
    stores: _Stores, tmp_path: Path, strike: str, step: int, replaces: bool
) -> None:
    def run(files: Files) -> None:
        with locked_for_reading(stores.backup) as repository:
            require_target(target, replace=replaces)
            restore(repository, repository.find(stores.point.name), target, no_progress, files)

    target = tmp_path / "target"
    counting = FaultyFiles()
    restored(stores.backup, stores.point.name, tmp_path / "restored", files=counting)
    calls = len(counting.calls) + (8 if replaces else 0)
    complete = old = 0
    # Between the first and the last calls are the writes.
    steps = [*range(1, 12), calls // 2, *range(calls - 14, calls + 1)]
    for nth in range(1, calls + 1) if step == 1 else steps[::step]:
        shutil.rmtree(target, ignore_errors=True)
        if replaces:
            shutil.copytree(stores.second, target)
        else:
            target.mkdir()
        files = FaultyFiles(nth, FAULTS[strike])
        _interrupt(run, files, strike)
        if is_interrupted(target):
            # Another interruption meets what this one has left.
            _interrupt(run, FaultyFiles(nth % 9 + 1, FAULTS[strike]), strike)
        if is_interrupted(target):
            run(Files())
        elif not replaces:
            names = {path.name for path in target.iterdir()}
            assert not names or names >= _NAMES_OF_A_STORE, (nth, names)
        if database_path(target).exists():
            assert not check(target, CONFIG).findings, nth
            old += _has_new(target, stores)
            complete += not _has_new(target, stores)
    assert complete
    assert bool(old) == replaces
    run_again = restored(stores.backup, stores.point.name, tmp_path / "again")
    assert asyncio.run(read_all(run_again)) == expected()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("rename", "restore.installing"),
        ("unlink", "ledger.sqlite3-wal"),
        ("unlink", "reserve"),
        ("rename", "segments"),
        ("rename", "ledger.sqlite3"),
        ("unlink", "restore.installing/point.json"),
    ],
)
def test_a_complete_copy_is_installed_when_the_point_is_restored_again(
    stores: _Stores, tmp_path: Path, call: str, name: str
) -> None:
    """Also if the backup was damaged meanwhile; another point is restored from the beginning."""
    backup = shutil.copytree(stores.backup, tmp_path / "backup")
    other = back_up(stores.second, backup)
    target, other_target = tmp_path / "target", tmp_path / "other"
    counting = FaultyFiles()
    restored(backup, stores.point.name, target, files=counting)
    nth = counting.calls.index((call, str(target / name))) + 1
    shutil.rmtree(target)
    with pytest.raises(OSError, match="Input/output"):
        restored(backup, stores.point.name, target, files=FaultyFiles(nth, failing(errno.EIO)))
    assert is_interrupted(target)
    shutil.copytree(target, other_target)
    restored(backup, other.name, other_target)
    assert _has_new(other_target, stores)
    for pack in (backup / "segments").iterdir():
        pack.unlink()
    again = FaultyFiles()
    restored(backup, stores.point.name, target, files=again)
    assert not {called for called, _ in again.calls} & {"create", "write", "truncate"}
    assert asyncio.run(read_all(target)) == expected()
    assert not list(target.glob("restore.*"))


def _interrupt(run: Callable[[Files], None], files: FaultyFiles, strike: str) -> None:
    if strike == "killed":
        survives(run, files)
        return
    try:
        run(files)
    except OSError as error:
        assert error.errno == errno.EIO


def _has_new(directory: Path, stores: _Stores) -> bool:
    """Returns whether a directory has the later state."""
    size = database_path(directory).stat().st_size
    sizes = [database_path(store).stat().st_size for store in (stores.first, stores.second)]
    assert sizes[0] != sizes[1]
    return size == sizes[1]
