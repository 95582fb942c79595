"""Points of a backup: what they contain, what they cost, and what is left when some are removed."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from awscrt.checksums import crc64nvme
from msgspec.structs import replace

from etagere import directories
from etagere.backup import taking
from etagere.backup.files import Files
from etagere.backup.packs import BackupDamaged
from etagere.backup.points import Point
from etagere.backup.repository import (
    CannotBackUp,
    Repository,
    locked_for_reading,
    locked_for_writing,
)
from etagere.backup.restoring import INSTALLING_NAME, restore
from etagere.backup.taking import take
from etagere.bodies.contents import EXTENTS
from etagere.bodies.segment_files import segment_path
from etagere.config import KIB
from etagere.engine import copy_lock
from tests.backup.commands import etagere_here
from tests.backup.stores import back_up, change, no_progress, read, restored, size_of, verified
from tests.bodies.stores import DamagedStore, build, data_of, expected, read_all


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("built") / "data"
    asyncio.run(build(directory))
    return directory


@pytest.fixture
def store(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "data"))


def test_a_restored_store_has_every_object(built: Path, tmp_path: Path) -> None:
    point = back_up(built, tmp_path / "backup")
    target = restored(tmp_path / "backup", point.name, tmp_path / "restored")
    assert asyncio.run(read_all(target)) == expected()


def test_only_the_owner_can_access_backups_and_restored_stores(built: Path, tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        point = back_up(built, tmp_path / "backup")
        restored(tmp_path / "backup", point.name, tmp_path / "restored")
    finally:
        os.umask(umask)
    paths = [tmp_path / "backup", tmp_path / "restored"]
    paths += [path for root in paths for path in root.rglob("*")]
    assert len(paths) > 20
    assert not [path for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_points_have_different_states_and_cost_what_has_changed(
    store: Path, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    first = back_up(store, backup)
    asyncio.run(change(store, {"new": 20_000, "single": 7_000}, deletes=("many", "many-copy")))
    before = size_of(backup)
    second = back_up(store, backup)
    # The new bytes, the extents that were moved, and at most the whole ledger, which is small.
    assert second.added_bytes < first.added_bytes
    assert abs(size_of(backup) - before - second.added_bytes) < 16 * KIB
    # The first point after large changes may write the ledger again, but no more than that.
    assert back_up(store, backup).added_bytes <= second.ledger.length * 1.1
    assert back_up(store, backup).added_bytes == 0
    assert verified(backup).is_clean
    old = restored(backup, first.name, tmp_path / "old")
    assert asyncio.run(read_all(old)) == expected()
    new = restored(backup, second.name, tmp_path / "new")
    names = ("new", "single", "many", "late")
    assert read(new, *names) == [
        data_of("new", 20_000),
        data_of("single", 7_000),
        None,
        expected()["late"],
    ]


def test_removing_points_keeps_what_others_use(store: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    first = back_up(store, backup)
    asyncio.run(change(store, {"new": 20_000}, deletes=("many", "many-copy", "list", "list-old")))
    second = back_up(store, backup)
    before = size_of(backup)
    with locked_for_writing(backup) as repository:
        repository.remove([first.name])
        assert repository.point_names() == [second.name]
    assert size_of(backup) < before - 90_000  # "many" is gone
    assert verified(backup).is_clean
    target = restored(backup, second.name, tmp_path / "restored")
    assert read(target, "new", "moved") == [data_of("new", 20_000), expected()["moved"]]
    with pytest.raises(CannotBackUp, match="no point"), locked_for_reading(backup) as reading:
        reading.find(first.name)


def test_many_points_of_a_changing_store_do_not_pile_up(store: Path, tmp_path: Path) -> None:
    """With a fixed number of points, the size of a backup is bounded."""
    backup = tmp_path / "backup"
    sizes = []
    for number in range(6):
        asyncio.run(change(store, {"hot": 30_000 + number}))
        back_up(store, backup)
        with locked_for_writing(backup) as repository:
            points, _ = repository.points()
            repository.remove([point.name for point in points[:-2]])
        sizes.append(size_of(backup))
    assert max(sizes) < 3.5 * sizes[0]
    assert verified(backup).is_clean


def test_a_restored_store_can_be_backed_up_to_the_same_directory(
    store: Path, tmp_path: Path
) -> None:
    """Both stores go on with the same numbers of segments, for different bytes."""
    backup = tmp_path / "backup"
    first = back_up(store, backup)
    fork = restored(backup, first.name, tmp_path / "fork")
    asyncio.run(change(store, {"mine": 50_000}))
    asyncio.run(change(fork, {"yours": 50_000}))
    mine, yours = back_up(store, backup), back_up(fork, backup)
    assert verified(backup).is_clean
    target = restored(backup, mine.name, tmp_path / "mine")
    assert read(target, "mine", "yours") == [data_of("mine", 50_000), None]
    target = restored(backup, yours.name, tmp_path / "yours")
    assert read(target, "mine", "yours") == [None, data_of("yours", 50_000)]


def test_a_full_backup_uses_nothing_of_earlier_points(built: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    first = back_up(built, backup)
    second = back_up(built, backup, full=True)
    assert second.added_bytes == first.added_bytes
    with locked_for_writing(backup) as repository:
        repository.remove([first.name])
    restored(backup, second.name, tmp_path / "restored")


def test_every_damaged_byte_of_a_backup_is_found(built: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    point = back_up(built, backup)
    files = [path for path in backup.rglob("*") if path.is_file() and path.stat().st_size]
    assert len(files) == 6
    for path in files:
        intact = path.read_bytes()
        for at in {0, 9, len(intact) // 2, len(intact) - 60, len(intact) - 1}:
            damaged = bytearray(intact)
            damaged[at] ^= 0x10
            path.write_bytes(damaged)
            _assert_damaged(backup, point.name, tmp_path, f"{path.name} at {at}")
        path.write_bytes(intact[: len(intact) // 2])
        _assert_damaged(backup, point.name, tmp_path, f"{path.name} cut off")
        path.unlink()
        if path.parent.name != "points":
            _assert_damaged(backup, point.name, tmp_path, f"{path.name} missing")
        path.write_bytes(intact)
    assert verified(backup).is_clean


def _assert_damaged(backup: Path, name: str, tmp_path: Path, what: str) -> None:
    assert not verified(backup).is_clean, what
    target = tmp_path / "damaged"
    try:
        restored(backup, name, target)
    except BackupDamaged:
        assert not list(target.iterdir()) if target.exists() else True, what
    else:
        # The magic number at the start is not needed.
        assert what.endswith("at 0"), what
        shutil.rmtree(target)


def test_a_full_backup_replaces_damaged_packs(built: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    back_up(built, backup)
    for path in (*backup.glob("ledger/*"), *backup.glob("segments/*")):
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)
    point = back_up(built, backup, full=True)
    assert [bool(damages) for damages in verified(backup).damages.values()] == [True, False]
    restored(backup, point.name, tmp_path / "restored")


def test_damaged_data_is_reported_and_the_rest_is_backed_up(built: Path, tmp_path: Path) -> None:
    damaged = DamagedStore(built, tmp_path / "data")
    (number, offset), extent = damaged.rows(EXTENTS)[3]
    path = segment_path(damaged.directory, number)
    data = bytearray(path.read_bytes())
    data[offset + 1] ^= 1
    path.write_bytes(data)
    (gone, _), _ = damaged.rows(EXTENTS)[-1]
    assert gone != number
    segment_path(damaged.directory, gone).unlink()
    point = back_up(damaged.directory, tmp_path / "backup")
    assert (number, offset, extent.length) in [lost[:3] for lost in _as_tuples(point.lost)]
    assert {lost.segment for lost in point.lost} == {number, gone}
    assert verified(tmp_path / "backup").is_clean
    with pytest.raises(AssertionError, match="damaged"):
        restored(tmp_path / "backup", point.name, tmp_path / "restored")
    assert read(tmp_path / "restored", "small") == [expected()["small"]]


def _as_tuples(lost: tuple[object, ...]) -> list[tuple[object, ...]]:
    return [tuple(getattr(one, name) for name in ("segment", "offset", "length")) for one in lost]


def test_a_backup_needs_a_directory_of_its_own(built: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("dear", encoding="utf-8")
    cases = {
        other: "neither empty nor a backup",
        other / "letter.txt": "not a directory",
        built: "contain each other",
        built / "backup": "contain each other",
        built.parent: "contain each other",
    }
    for target, why in cases.items():
        with pytest.raises(CannotBackUp, match=why):
            back_up(built, target)
    assert [path.name for path in other.iterdir()] == ["letter.txt"]
    with pytest.raises(CannotBackUp, match="not a data directory"):
        back_up(other, tmp_path / "backup")
    with pytest.raises(CannotBackUp, match="not a backup"), locked_for_reading(other):
        pass


def test_one_backup_at_a_time_uses_a_directory(built: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with (
        locked_for_writing(backup),
        pytest.raises(CannotBackUp, match="another etagere process"),
    ):
        back_up(built, backup)
    point = back_up(built, backup)
    with locked_for_reading(backup):
        restored(backup, point.name, tmp_path / "restored")  # readers do not exclude each other
        with pytest.raises(CannotBackUp, match="another etagere process"):
            back_up(built, backup)


def test_a_point_is_restored_only_to_an_unused_directory(built: Path, tmp_path: Path) -> None:
    backup, target = tmp_path / "backup", tmp_path / "data"
    point = back_up(built, backup)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").touch()
    for replaces in (False, True):
        with pytest.raises(CannotBackUp, match="neither empty nor"):
            restored(backup, point.name, tmp_path / "notes", replace=replaces)
    shutil.copytree(built, target)
    asyncio.run(change(target, {"newer": 40_000}))
    with pytest.raises(CannotBackUp, match="--replace"):
        restored(backup, point.name, target)
    assert read(target, "newer") == [data_of("newer", 40_000)]
    restored(backup, point.name, target, replace=True)
    assert asyncio.run(read_all(target)) == expected()


def test_extents_are_recognized_by_their_checksums(built: Path, tmp_path: Path) -> None:
    """As when a machine was set back to an earlier state, and its processes went on from there."""
    backup = tmp_path / "backup"
    back_up(built, backup)
    changed = DamagedStore(built, tmp_path / "data")
    (number, offset), extent = changed.rows(EXTENTS)[3]
    data = bytes(extent.length)
    path = segment_path(changed.directory, number)
    content = bytearray(path.read_bytes())
    content[offset : offset + extent.length] = data
    path.write_bytes(content)
    changed.put(EXTENTS, (number, offset), replace(extent, crc=crc64nvme(data)))
    point = back_up(changed.directory, backup)
    assert not point.lost
    with locked_for_reading(backup) as repository:
        restore(repository, point, tmp_path / "restored", no_progress)
    written = segment_path(tmp_path / "restored", number).read_bytes()
    assert written[offset : offset + extent.length] == data


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_root_leaves_nothing_that_the_owner_of_the_store_cannot_open(
    store: Path, tmp_path: Path
) -> None:
    for path in (store, *store.rglob("*")):
        os.chown(path, 65534, 65534)
    owners: set[int] = set()

    def look(_phase: str, _done: int, _total: int) -> None:
        owners.update(path.stat().st_uid for path in store.rglob("*"))

    take(store, tmp_path / "backup", look)
    owners.update(path.stat().st_uid for path in store.rglob("*"))
    assert owners == {65534}


def test_a_backup_leaves_space_for_the_server(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "FREE_BYTES_MIN", 1 << 62)
    with pytest.raises(CannotBackUp, match="which the server may need"):
        back_up(built, tmp_path / "backup")
    assert not list((tmp_path / "backup" / "temporary").iterdir())


def test_a_full_directory_makes_room_by_removing_old_points(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as --keep would remove after the backup, and never the last one that is intact."""
    backup = tmp_path / "backup"
    command = ("backup", backup, "--data", store, "--keep")
    first, second = back_up(store, backup), back_up(store, backup)
    room = {"points": 2}

    def make_directory(_files: Files, path: Path) -> None:
        if path.name == "temporary" and len(names()) >= room["points"]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        directories.make(path)

    def names() -> list[str]:
        points, _ = Repository(backup).points()
        return [point.name for point in points]

    monkeypatch.setattr(Files, "make_directory", make_directory)
    # With two points there is no room for a third.
    output = etagere_here("backup", backup, "--data", store, status=2)
    assert "No space left on device. Free some space, or remove points" in output
    assert "no point could be removed" in etagere_here(*command, "3", status=2)
    assert names() == [first.name, second.name]
    assert f"removed {first.name}\n" in etagere_here(*command, "2")
    third = names()[1]
    assert names() == [second.name, third]
    # Not even the last point may be there.
    room["points"] = 1
    assert "No space left" in etagere_here(*command, "1", status=2)
    assert names() == [third]
    assert "no point could be removed" in etagere_here(*command, "1", status=2)
    assert names() == [third]
    # The last point cannot be restored.
    room["points"] = 9
    fourth = back_up(store, backup, full=True)
    (backup / "ledger" / f"{fourth.name}.pack").write_bytes(b"")
    room["points"] = 1
    assert "no point could be removed" in etagere_here(*command, "1", status=2)
    assert names() == [third, fourth.name]
    restored(backup, third, tmp_path / "restored")


def test_the_writer_learns_that_the_ledger_is_being_copied(built: Path) -> None:
    assert not copy_lock.is_being_copied(built)
    with copy_lock.copying(built), copy_lock.copying(built):
        assert copy_lock.is_being_copied(built)
    assert not copy_lock.is_being_copied(built)


def test_a_point_does_not_take_the_place_of_a_removed_one(store: Path, tmp_path: Path) -> None:
    """Others may use the pack of its ledger. The clock stands still or was set back."""
    backup, now = tmp_path / "backup", datetime(2026, 1, 2, tzinfo=UTC)

    def back_up_now() -> Point:
        return take(store, backup, no_progress, now=lambda: now)

    first = back_up_now()
    asyncio.run(change(store, {"one": 40_000}))
    second = back_up_now()
    with locked_for_writing(backup) as repository:
        repository.remove([first.name])
    asyncio.run(change(store, {"two": 40_000}))
    third = back_up_now()
    assert len({first.name, second.name, third.name}) == 3
    assert verified(backup).is_clean
    restored(backup, second.name, tmp_path / "second")
    restored(backup, third.name, tmp_path / "third")


def test_a_directory_that_a_point_is_restored_to_is_not_backed_up(
    store: Path, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    point = back_up(store, backup)

    def restore_meanwhile(phase: str, _done: int, _total: int) -> None:
        if phase == "segments":
            with locked_for_reading(backup) as repository:
                restore(repository, point, store, no_progress)

    with pytest.raises(CannotBackUp, match="meanwhile"):
        take(store, tmp_path / "other", restore_meanwhile)
    (store / INSTALLING_NAME / "segments").mkdir(parents=True)
    with pytest.raises(CannotBackUp, match="interrupted"):
        back_up(store, tmp_path / "other")
    assert not list((tmp_path / "other" / "points").iterdir())
