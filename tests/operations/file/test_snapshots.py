"""Snapshots of shares with every engine: every earlier state is shown, and freed in the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from etagere.bodies.reaping import Flatten, flatten
from etagere.engine.interface import ReadTxn
from etagere.model.bodies import Body
from etagere.model.files import NewEntry, NewTimes, PutRange
from etagere.model.leases import Acquire, new_lease_id
from etagere.operations.file.collections import ENTRIES, FORMER_ENTRIES
from etagere.operations.file.purging import PurgeShares, purge_histories
from etagere.operations.file.ranges import precheck_range
from etagere.rules.file_attributes import FileAttributes
from tests.operations.blob.consistency import rows
from tests.operations.file.consistency import history_records
from tests.operations.file.copying import copy, of, to
from tests.operations.file.fixture import FileFixture, file_test, path_of
from tests.operations.fixture import code_of

State = dict[str, bytes | None]
Change = Callable[[FileFixture], Awaitable[object]]


CHANGES: tuple[Change, ...] = (
    lambda files: files.put("new", b"new"),
    lambda files: files.put("dir/f", b"overwritten"),
    lambda files: files.put_range("dir/f", 2, b"XX"),
    lambda files: files.clear("dir/f", 1, 4),
    lambda files: files.set("dir/f", length=5),
    lambda files: files.set("dir/f", length=8),
    lambda files: files.rename("dir", "moved", is_directory=True),
    lambda files: files.put_range("moved/sub/g", 0, b"G"),
    lambda files: files.rename("moved/f", "moved/sub/f"),
    lambda files: files.rename("moved/sub/f", "new", replace=True),
    lambda files: files.rename("new", "NEW"),
    lambda files: files.delete("moved/sub/g"),
    lambda files: files.rmdir("moved/sub"),
    lambda files: files.mkdir("moved/sub"),
    lambda files: files.rename("moved/sub", "dir", is_directory=True),
    lambda files: files.put("dir/f", b"again"),
    lambda files: files.delete("dir/f"),
    lambda files: files.put("dir/f", b""),
    lambda files: files.delete("NEW"),
    lambda files: files.describe("dir", is_directory=True),
)


async def _begin(files: FileFixture) -> None:
    await files.create()
    await files.mkdir("dir")
    await files.mkdir("dir/sub")
    await files.put("dir/f", b"0123456789")
    await files.put("dir/sub/g", b"g" * 10)
    await files.put("idle", b"idle")


async def _clean(files: FileFixture) -> None:
    for path, data in reversed((await files.tree()).items()):
        await (files.rmdir(path) if data is None else files.delete(path))


@file_test
async def test_each_snapshot_shows_the_state_of_its_time(files: FileFixture) -> None:
    await _begin(files)
    taken: dict[int, State] = {}
    for change in CHANGES:
        state = await files.tree()
        taken[await files.snapshot()] = state
        await change(files)
        assert await files.tree() != state or change is CHANGES[-1]
    await files.require_sound()
    for moment, state in taken.items():
        assert await files.tree(moment) == state
    for number, moment in enumerate(list(taken)[1::2]):
        await files.delete_snapshot(moment)
        del taken[moment]
        if number % 3 == 0:
            await files.purge(rows_max=3)
    await files.purge(rows_max=3)
    await files.require_sound()
    for moment, state in taken.items():
        assert await files.tree(moment) == state
    await _clean(files)
    for moment, state in taken.items():
        assert await files.tree(moment) == state
    await files.require_sound()
    for moment in taken:
        await files.delete_snapshot(moment)
    await files.require_empty()


@file_test
async def test_many_changes_between_two_snapshots_keep_one_state(files: FileFixture) -> None:
    await _begin(files)
    before = await files.tree()
    first = await files.snapshot()
    for change in CHANGES:
        await change(files)
    after = await files.tree()
    second = await files.snapshot()
    for number in range(3):
        await files.put("dir/f", b"x" * number)
        await files.delete("dir/f")
    assert await files.tree(first) == before
    assert await files.tree(second) == after
    await files.require_sound()
    await files.delete_snapshot(first)
    await files.purge()
    assert await files.read(history_records, None) == 1
    assert await files.tree(second) == after
    await files.require_sound()
    await files.delete_share()
    await files.require_empty()


@file_test
async def test_a_snapshot_writes_one_record(files: FileFixture) -> None:
    await _begin(files)

    def stored(txn: ReadTxn, _: None) -> object:
        return rows(txn, ENTRIES), rows(txn, FORMER_ENTRIES)

    before = await files.read(stored, None)
    await files.snapshot()
    assert await files.read(stored, None) == before
    await files.describe("idle")
    assert await files.read(history_records, None) == 1
    await files.describe("idle")
    assert await files.read(history_records, None) == 1


@file_test
async def test_changes_without_a_snapshot_keep_nothing(files: FileFixture) -> None:
    await _begin(files)
    moment = await files.snapshot()
    await files.delete_snapshot(moment)
    for change in CHANGES:
        await change(files)
    assert await files.read(history_records, None) == 0
    await _clean(files)
    await files.require_empty()


@file_test
async def test_a_snapshot_deleted_during_a_purge_is_purged_too(files: FileFixture) -> None:
    await files.create()
    for number in range(10):
        await files.put(f"f{number}", b"one")
    first = await files.snapshot()
    for number in range(10):
        await files.put(f"f{number}", b"two")
    second = await files.snapshot()
    for number in range(10):
        await files.delete(f"f{number}")
    await files.delete_snapshot(first)
    assert await files.write(purge_histories, PurgeShares(12))
    await files.delete_snapshot(second)
    await files.require_empty()


# Listings


@file_test
async def test_entries_are_listed_in_pages(files: FileFixture) -> None:
    await files.create()
    names = [f"{'bB'[number % 2]}{number:02}" for number in range(30)]
    for name in names:
        await (files.mkdir(name) if name.endswith("3") else files.put(name))
    for name in ("a", "C", "c2"):
        await files.put(name)
    taken = await files.snapshot()
    for number in range(0, 30, 3):
        path = names[number]
        await (files.rmdir(path) if path.endswith("3") else files.delete(path))
    for number in range(30):
        await files.put(f"b{number:02}x")
    expected = {taken: ["a", *names, "C", "c2"], None: await files.names()}
    assert len(expected[None]) == 53
    for snapshot, every in expected.items():
        assert await files.names("", snapshot) == every
        assert await files.names("", snapshot, prefix="B1") == [
            name for name in every if name.upper().startswith("B1")
        ]
        for limit in (1, 4, 17, 33):
            found, marker = [], ""
            while True:
                page, more = await files.page("", snapshot, limit, marker=marker)
                assert len(page) == limit or more is None
                found += [entry.name for entry in page]
                if more is None:
                    break
                marker = more.name.upper()
            assert found == every
    assert await code_of(files.names("none")) == "ResourceNotFound"
    assert await code_of(files.names("none/sub")) == "ParentNotFound"


# Ranges


@file_test
async def test_ranges_are_listed(files: FileFixture) -> None:
    await files.create()
    await files.put("f", length=1_000)
    assert (await files.ranges("f")).ranges == ()
    for start in (0, 100, 300, 900):
        await files.put_range("f", start, b"x" * 100)

    async def found(**asked: int) -> list[tuple[int, int, bool]]:
        listed = (await files.ranges("f", **asked)).ranges
        return [(each.start, each.end, each.written) for each in listed]

    assert await found() == [(0, 200, True), (300, 400, True), (900, 1_000, True)]
    assert await found(first=150, last=349) == [(150, 200, True), (300, 350, True)]
    assert await code_of(found(first=1_000)) == "InvalidRange"
    page = await files.ranges("f", limit=1)
    assert (len(page.ranges), page.following) == (1, 300)
    assert await found(start=300) == [(300, 400, True), (900, 1_000, True)]
    taken = await files.snapshot()
    await files.clear("f", 350, 450)
    await files.put_range("f", 500, b"y" * 10)
    assert await found(previous=taken) == [(350, 450, False), (500, 510, True)]
    later = await files.snapshot()
    await files.put_range("f", 0, b"z")
    assert [row[:2] for row in await found(previous=later)] == [(0, 1)]
    assert await code_of(files.ranges("f", taken, previous=later)) == (
        "PreviousSnapshotCannotBeNewer"
    )
    assert await code_of(files.ranges("f", previous=1)) == "PreviousSnapshotNotFound"
    await files.put("f", b"recreated")
    assert await code_of(files.ranges("f", previous=later)) == "FileGenerationMismatch"
    await files.put("g", b"new")
    assert await code_of(files.ranges("g", previous=later)) == "FileGenerationMismatch"
    await files.require_sound()


@file_test
async def test_changes_after_a_copy_may_include_holes(files: FileFixture) -> None:
    """A hole shows in which map it was cleared. Other maps with the same hole do not know that any
    more, so after a copy from one to the other the hole may count as cleared. It was never less
    than a hole, so a client that repeats the changes gets the same bytes."""
    await files.create()
    await files.put("f", b"x" * 512, length=2_048)
    await files.snapshot()
    await files.clear("f", 1_024, 1_536)
    await copy(files, of("f"), to("g"))
    await files.put_range("g", 0, b"y" * 512)
    await files.put_range("f", 512, b"z" * 512)
    while await files.write(flatten, Flatten()):
        pass
    taken = await files.snapshot()
    before = await files.get("f")
    await copy(files, of("g"), to("f"))
    changes = (await files.ranges("f", previous=taken)).ranges
    assert [(each.start, each.end, each.written) for each in changes] == [
        (0, 512, True),
        (512, 1_536, False),
    ]
    after = bytearray(before)
    for each in changes:
        new = (await files.get("f"))[each.start : each.end]
        assert each.written or not any(new)
        after[each.start : each.end] = new
    assert bytes(after) == await files.get("f")
    await files.require_sound()


@file_test
async def test_only_aligned_parts_of_a_cleared_range_are_freed(files: FileFixture) -> None:
    await files.create()
    data = b"x" * 4_096
    await files.put("f", data)
    taken = await files.snapshot()
    for start, end in (
        (100, 1_700),
        (2_048, 2_560),
        (3_000, 3_010),
        (4_000, 4_096),
    ):
        await files.clear_aligned("f", start, end)
        data = data[:start] + bytes(end - start) + data[end:]
        assert await files.get("f") == data
        await files.require_sound()
    listed = (await files.ranges("f")).ranges
    assert [(each.start, each.end) for each in listed] == [
        (0, 512),
        (1_536, 2_048),
        (2_560, 4_096),
    ]
    changes = (await files.ranges("f", previous=taken)).ranges
    assert [(each.start, each.end, each.written) for each in changes] == [
        (100, 512, True),
        (512, 1_536, False),
        (1_536, 1_700, True),
        (2_048, 2_560, False),
        (3_000, 3_010, True),
        (4_000, 4_096, True),
    ]
    assert await files.get("f", taken) == b"x" * 4_096
    await files.delete("f")
    await files.delete_snapshot(taken)
    await files.require_empty()


@file_test
async def test_changed_ranges_of_a_file_that_was_moved(files: FileFixture) -> None:
    await files.create_nfs()
    for path in ("a", "a/b", "c"):
        await files.mkdir(path)
    await files.put("a/b/f", length=100)
    first = await files.snapshot()
    await files.put_range("a/b/f", 0, b"x")
    await files.rename("a/b/f", "a/b/g")
    await files.rename("a/b/g", "c/h")
    second = await files.snapshot()
    await files.rename("c", "d", is_directory=True)
    await files.put_range("d/h", 10, b"y")
    third = await files.snapshot()
    await files.link("i", "d/h")
    await files.rename("d/h", "d/j")
    await files.put_range("i", 20, b"z")

    async def found(path: str, previous: int, snapshot: int | None = None) -> list[int]:
        assert await code_of(files.ranges(path, snapshot, previous=previous)) in (
            "FileGenerationMismatch",
            "",
        )
        listed = await files.ranges(path, snapshot, previous=previous, follows_renames=True)
        return [each.start for each in listed.ranges]

    for path in ("i", "d/j"):
        assert await found(path, first) == [0, 10, 20]
        assert await found(path, second) == [10, 20]
        assert await found(path, third) == [20]
    assert await found("d/h", first, third) == [0, 10]
    assert await found("c/h", first, second) == [0]
    refused = files.ranges("d/j", previous=third)
    assert await code_of(refused) == "FileGenerationMismatch"
    await files.put("a/b/f", b"new")
    refused = files.ranges("a/b/f", previous=first, follows_renames=True)
    assert await code_of(refused) == "FileGenerationMismatch"
    await files.require_sound()
    for moment in (first, third, second):
        await files.delete_snapshot(moment)
        await files.purge(1)
        await files.require_sound()
    for path in ("i", "d/j", "a/b/f"):
        await files.delete(path)
    await files.require_empty()


@file_test
async def test_ranges_outside_of_the_file_are_refused(files: FileFixture) -> None:
    await files.create()
    await files.put("f", length=10)
    assert await code_of(files.put_range("f", 8, b"xyz")) == "InvalidRange"
    assert await code_of(files.clear("f", 8, 11)) == "InvalidRange"
    await files.put_range("f", 8, b"yz")
    assert await files.get("f") == bytes(8) + b"yz"
    await files.put("empty")
    assert await code_of(files.put_range("empty", 0, b"x")) == "InvalidRange"
    await files.set("empty", length=3)
    await files.put_range("empty", 1, b"x")
    assert await files.get("empty") == b"\0x\0"
    await files.require_sound()


@file_test
async def test_a_range_is_checked_before_its_upload(files: FileFixture) -> None:
    await files.create()
    await files.mkdir("dir")
    await files.put("f", length=10)
    taken = await files.snapshot()

    async def outcome(path: str, start: int = 0, snapshot: int | None = None) -> str:
        body = Body(b"", 4, 0)
        command = PutRange(path_of(path, snapshot), start, body, b"")
        return await code_of(files.read(precheck_range, command))

    assert await outcome("f", 6) == ""
    assert await outcome("f", 7) == "InvalidRange"
    assert await outcome("f", 6, taken) == "ShareSnapshotOperationNotSupported"
    assert await outcome("none") == "ResourceNotFound"
    assert await outcome("none/f") == "ParentNotFound"
    assert await outcome("dir") == "ResourceTypeMismatch"
    await files.lease("f", Acquire(new_lease_id(), None))
    assert await outcome("f") == "LeaseIdMissing"
    await files.put("g", length=10, new=NewEntry(NewTimes(), int(FileAttributes.READ_ONLY)))
    assert await outcome("g") == "ReadOnlyAttribute"


@file_test
async def test_a_huge_file_costs_nothing(files: FileFixture) -> None:
    await files.create()
    await files.put("f", length=4 << 40)
    await files.put_range("f", (4 << 40) - 4, b"tail")
    assert await files.get("f", first=(4 << 40) - 6) == b"\0\0tail"
    await files.delete("f")
    await files.require_empty()


@file_test
async def test_files_that_no_snapshot_shows_leave_no_history(files: FileFixture) -> None:
    """As a client leaves them that writes a new file and renames it to the final name."""
    await files.create_nfs()
    await files.put("f")
    taken = await files.snapshot()
    await files.put("g")
    await files.rename("g", "f", replace=True)
    history = await files.read(history_records, None)
    for _ in range(3):
        await files.put("g")
        await files.rename("g", "f", replace=True)
        await files.put("h")
        await files.link("i", "h")
        await files.delete("h")
        await files.delete("i")
    assert await files.read(history_records, None) == history
    await files.delete_snapshot(taken)
    await files.require_sound()
