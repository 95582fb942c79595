"""The bytes of open files with every engine: what readers see, and when it is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from etagere.config import MIB
from etagere.engine.interface import Fault, FaultReason, Unknown
from etagere.model.files import EntryPath, RenameEntry, SetEntryProperties
from etagere.model.shares import SnapshotShare
from etagere.opens import gathering
from etagere.opens.requests import OpenRequest
from etagere.opens.table import OpenTable
from etagere.operations.file import entries, renames, shares
from etagere.rules.file_attributes import FileAttributes
from etagere.rules.opens import EVERYTHING, Access, OpenMode, RestAccess
from tests.loops import SECONDS_MAX
from tests.opens.contents_fixture import ContentsFixture, contents_test, length_of
from tests.opens.fixture import D, R, W, opened
from tests.operations.file.fixture import SHARE, path_of
from tests.operations.fixture import code_of

_FULL = Fault(FaultReason.DISK_FULL, "no space left on device")


@contents_test
async def test_a_write_is_visible_at_once(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file(data=b"0123456789")
    other = await opened(await f.connect(), "f", R)
    await f.smb_write(handle, 2, b"abc")
    assert await f.smb_read(other) == b"01abc56789"
    assert f.contents.length(handle.entry) == 10
    assert f.watched.writes == 0
    assert await f.stored_bytes() == b"0123456789"
    assert await f.rest_bytes() == b"01abc56789"
    assert f.watched.writes == 1
    assert f.contents.length(handle.entry) is None
    assert f.memory.used == 0


@contents_test
async def test_a_write_behind_the_end_leaves_zeros(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file(data=b"ab")
    await f.smb_write(handle, 5, b"x")
    assert await f.smb_read(handle) == b"ab\0\0\0x"
    assert await f.smb_read(handle, 3, 2) == b"\0\0"
    assert await f.smb_read(handle, 6) == b""
    assert await f.smb_read(handle, 600) == b""
    await f.flush(handle)
    assert await f.smb_read(handle) == b"ab\0\0\0x"
    assert await f.smb_read(handle, 4, 1) == b"\0"
    assert await f.smb_read(handle, 6) == b""
    assert await f.usage() == 6
    await f.require_sound()


@contents_test
async def test_a_flush_moves_the_etag_and_the_times(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file(data=b"ab")
    before = await f.entry("f")
    await asyncio.sleep(0.01)
    await f.smb_write(handle, 0, b"x", through=True)
    after = await f.entry("f")
    assert after.stamp > before.stamp
    assert after.times.written > before.times.written
    assert after.times.changed > before.times.changed
    assert after.times.created == before.times.created
    # A client that has set the last write time does not change it any more.
    handle.preserves_written = True
    changes: tuple[Callable[[], Awaitable[None]], ...] = (
        lambda: f.smb_write(handle, 0, b"y"),
        lambda: f.resize(handle, 9),
        lambda: f.clear_bytes(handle, 0, 5),
    )
    last = after
    for change in changes:
        await asyncio.sleep(0.01)
        await change()
        await f.flush(handle)
        previous, last = last, await f.entry("f")
        assert last.times.written == after.times.written
        assert last.times.changed > previous.times.changed
    handle.preserves_written = False
    await f.resize(handle, 9)
    await f.flush(handle)
    assert (await f.entry("f")).times.written > after.times.written


@contents_test
async def test_clients_see_length_and_times_before_they_are_stored(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file(data=b"ab")
    reader = await opened(f.client, "f", R)
    seen, writes = await f.client.get_entry(handle), f.watched.writes
    for number in range(20):
        await asyncio.sleep(0.001)
        await f.smb_write(handle, number * 10, b"0123456789")
        before, seen = seen, await f.client.get_entry(reader)
        assert length_of(seen) == (number + 1) * 10
        assert before.times.written < seen.times.written == seen.times.changed
    third = await f.client.open(OpenRequest(path_of("f"), OpenMode(R, EVERYTHING)))
    assert third.entry == seen
    assert f.watched.writes == writes
    await f.flush(handle)
    assert (await f.entry("f")).times == seen.times
    assert length_of(await f.client.get_entry(reader)) == 200


@contents_test
async def test_a_sequential_copy_costs_few_transactions(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file()
    data = [bytes([number]) * MIB for number in range(24)]
    for number, part in enumerate(data):
        await f.smb_write(handle, number * MIB, part)
        await asyncio.sleep(0)
    expected = b"".join(data)[5 * MIB + 3 : 7 * MIB + 3]
    assert await f.smb_read(handle, 5 * MIB + 3, 2 * MIB) == expected
    await f.flush(handle)
    assert f.watched.writes <= 6
    assert await f.rest_bytes() == b"".join(data)
    assert f.memory.used == 0
    await f.require_sound()


@contents_test
async def test_reads_see_writes_that_are_being_stored(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file(data=b"0123456789")
    f.watched.gate.clear()
    await f.smb_write(handle, 0, b"aaaa")
    flush = asyncio.ensure_future(f.flush(handle))
    await asyncio.sleep(0.05)
    await f.smb_write(handle, 2, b"bbbb")
    assert await f.smb_read(handle) == b"aabbbb6789"
    assert await f.smb_read(handle, 0, 4) == b"aabb"
    rest = asyncio.ensure_future(f.rest_bytes())
    await asyncio.sleep(0.05)
    assert not flush.done()
    assert not rest.done()
    f.watched.gate.set()
    await flush
    assert await rest == b"aabbbb6789"


@contents_test
async def test_writes_are_stored_after_a_while(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file()
    await f.smb_write(handle, 0, b"x")
    async with asyncio.timeout(SECONDS_MAX):
        while not await f.stored_length():
            await asyncio.sleep(0.1)
    assert await f.stored_bytes() == b"x"
    assert not f.client.share.gathered


@contents_test
async def test_many_extents_are_stored_in_parts(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file(data=bytes(1000))
    count = 2 * gathering.EXTENTS_MAX + 10
    model = bytearray(3 * count)
    for number in range(count):
        await f.smb_write(handle, 3 * number, b"%c" % (number % 250 + 1))
        model[3 * number] = number % 250 + 1
    assert (await f.smb_read(handle, 0, 3 * count)).rstrip(b"\0") == bytes(model).rstrip(b"\0")
    await f.flush(handle)
    assert (await f.stored_bytes()).rstrip(b"\0") == bytes(model).rstrip(b"\0")
    assert 2 <= f.watched.writes <= 4
    await f.require_sound()


@contents_test
async def test_the_length_can_be_changed_before_it_is_stored(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file(data=b"0123456789")
    await f.smb_write(handle, 8, b"abcd")
    await f.resize(handle, 9)
    assert await f.smb_read(handle) == b"01234567a"
    await f.resize(handle, 4)
    await f.resize(handle, 12)
    await f.smb_write(handle, 10, b"z")
    assert await f.smb_read(handle) == b"0123\0\0\0\0\0\0z\0"
    assert await f.stored_length() == 10
    assert await f.rest_bytes() == b"0123\0\0\0\0\0\0z\0"
    assert f.watched.writes == 1
    assert await f.usage() == 12
    await f.resize(handle, 0)
    assert await f.rest_bytes() == b""
    assert await f.usage() == 0
    # The same length counts as a write all the same.
    await f.resize(handle, 0)
    assert f.client.share.gathered
    await f.require_sound()


@contents_test
async def test_a_range_can_be_cleared(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file(data=b"0123456789")
    await f.clear_bytes(handle, 3, 5)
    await f.clear_bytes(handle, 8, 100)
    await f.clear_bytes(handle, 20, 30)
    assert await f.smb_read(handle) == b"012\x00\x00567\0\0"
    await f.flush(handle)
    assert await f.smb_read(handle) == b"012\x00\x00567\0\0"
    found = await f.contents.allocated_ranges(f.client.share, handle, 0, 100, 10)
    assert found == [(0, 3), (5, 8)]
    await f.require_sound()


@contents_test
async def test_the_quota_is_examined_when_a_write_is_made(f: ContentsFixture) -> None:
    await f.start(quota_gib=1)
    await f.put("big", length=(1 << 30) - 10)
    handle = await f.opened_file()
    await f.smb_write(handle, 0, b"12345")
    await f.smb_write(handle, 0, b"54321")
    assert await code_of(f.smb_write(handle, 5, b"123456")) == "ShareSizeLimitReached"
    assert await code_of(f.resize(handle, 11)) == "ShareSizeLimitReached"
    await f.smb_write(handle, 5, b"12345")
    assert await code_of(f.smb_write(handle, 10, b"1")) == "ShareSizeLimitReached"
    # Another file takes the rest meanwhile: what was acknowledged is stored all the same.
    await f.put("more", length=10)
    assert await f.rest_bytes() == b"5432112345"
    assert await code_of(f.smb_write(handle, 10, b"1")) == "ShareSizeLimitReached"
    assert not f.client.share.gathered
    assert await code_of(f.smb_write(handle, 4 << 40, b"1")) == "ShareSizeLimitReached"


@contents_test
async def test_a_full_disk_keeps_what_was_written(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file(data=b"0123")
    await f.smb_write(handle, 0, b"ab")
    f.watched.fault = _FULL
    with pytest.raises(Fault):
        await f.flush(handle)
    with pytest.raises(Fault):
        await f.smb_write(handle, 2, b"c")
    assert await f.smb_read(handle) == b"ab23"
    with pytest.raises(Fault):
        await f.rest_bytes()
    with pytest.raises(Fault):
        await f.client.close(handle)
    again = await opened(f.client, "f", R)
    assert await f.smb_read(again) == b"ab23"
    f.watched.fault = None
    async with asyncio.timeout(SECONDS_MAX):
        while await f.stored_bytes() != b"ab23":
            await asyncio.sleep(0.1)
    assert f.memory.used == 0


@contents_test
async def test_a_file_that_cannot_be_stored_can_be_deleted(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file(data=b"0123")
    await f.smb_write(handle, 0, b"ab")
    f.watched.fault = _FULL
    with pytest.raises(Fault):
        await f.flush(handle)
    with pytest.raises(Fault):
        await f.client.close(handle)
    await f.rest_delete("f")
    f.watched.fault = None
    await f.table.flush_share(SHARE)
    assert f.memory.used == 0
    assert not f.client.share.gathered
    await f.require_sound()


@contents_test
async def test_attributes_do_not_prevent_that_writes_are_stored(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file(data=b"0123")
    await f.smb_write(handle, 0, b"ab")
    command = SetEntryProperties(
        path_of("f"), is_directory=False, attributes=int(FileAttributes.READ_ONLY)
    )
    await f.table.rest(
        path_of("f"), RestAccess.SET, lambda _: f.write(entries.set_properties, command)
    )
    await f.smb_write(handle, 1, b"xy")
    assert await f.rest_bytes() == b"axy3"


@contents_test
async def test_renames_take_gathered_writes_along(f: ContentsFixture) -> None:
    await f.start()
    await f.mkdir("d")
    handle = await f.opened_file("f", b"0123")
    await f.smb_write(handle, 0, b"ab")
    await f.rest_rename("f", "d/g")
    await f.smb_write(handle, 2, b"c")
    assert await f.smb_read(handle) == b"abc3"
    # After the last close, the directory above can be renamed.
    await f.client.close(handle)
    await f.rename("d", "e", is_directory=True)
    assert await f.rest_bytes("e/g") == b"abc3"
    await f.require_sound()


@contents_test
async def test_writers_wait_while_the_file_is_replaced(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file(data=b"0123456789" * 2)
    await f.smb_write(handle, 0, b"ab")
    begun, end = asyncio.Event(), asyncio.Event()

    async def run(path: object) -> None:
        begun.set()
        await end.wait()
        await f.put("f", b"xyz")

    replaced = asyncio.ensure_future(f.table.rest(path_of("f"), RestAccess.REPLACE, run))
    await begun.wait()
    written = asyncio.ensure_future(f.smb_write(handle, 1, b"w"))
    await asyncio.sleep(0.05)
    assert not written.done()
    end.set()
    await asyncio.gather(replaced, written)
    assert await f.smb_read(handle) == b"xwz"
    assert await f.rest_bytes() == b"xwz"
    await f.require_sound()


@contents_test
async def test_a_snapshot_shows_all_files_at_one_moment(f: ContentsFixture) -> None:
    await f.start()
    one, two = await f.opened_file("1"), await f.opened_file("2")
    stop = asyncio.Event()

    async def keep_writing() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            text = b"%08d" % number
            await f.smb_write(one, 0, text)
            await f.smb_write(two, 0, text)
            await asyncio.sleep(0)

    writer = asyncio.ensure_future(keep_writing())
    for _ in range(3):
        await asyncio.sleep(0.02)
        taken = await f.table.rest_in_share(
            SHARE,
            lambda: f.write(shares.snapshot_share, SnapshotShare(SHARE)),
            holds_writers=True,
        )
        first = int(await f.stored_bytes("1", taken.snapshot) or b"0")
        second = int(await f.stored_bytes("2", taken.snapshot) or b"0")
        assert first - second in (0, 1)
    stop.set()
    await writer
    assert await f.rest_bytes("1") == await f.smb_read(two)
    await f.require_sound()


@contents_test
async def test_a_file_in_a_snapshot_can_be_read(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file(data=b"0123")
    moment = await f.snapshot()
    await f.smb_write(handle, 0, b"abcdef")
    old = await opened(f.client, "f", R, snapshot=moment)
    assert await f.smb_read(old) == b"0123"
    await f.flush(handle)
    assert await f.smb_read(old) == b"0123"
    assert await f.smb_read(handle) == b"abcdef"
    await f.require_sound()


@contents_test
async def test_listings_and_statistics_include_gathered_writes(f: ContentsFixture) -> None:
    await f.start()
    await f.mkdir("d")
    inside, outside = await f.opened_file("d/f"), await f.opened_file("g")
    await f.smb_write(inside, 0, b"123")
    await f.smb_write(outside, 0, b"12345")

    async def run(_: object) -> list[int]:
        return [length_of(entry) for entry in (await f.page("d"))[0]]

    assert await f.table.rest(path_of("d"), RestAccess.LIST, run) == [3]
    assert await f.stored_length("g") == 0
    assert await f.table.rest_in_share(SHARE, f.usage) == 8


@contents_test
async def test_a_deleted_share_forgets_gathered_writes(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file()
    await f.smb_write(handle, 0, b"abc")

    async def delete() -> None:
        await f.delete_share(retention_days=0)
        f.table.drop(path_of("").ref)

    f.watched.fault = _FULL
    await f.table.rest_in_share(SHARE, delete, deletes=True)
    f.watched.fault = None
    assert await code_of(f.smb_write(handle, 0, b"x")) == "ShareBeingDeleted"
    assert f.memory.used == 0
    await f.require_empty()


@contents_test
async def test_a_share_stays_tracked_until_everything_is_stored(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file()
    await f.smb_write(handle, 0, b"abc")
    share = f.client.share
    await f.client.disconnect()
    assert f.table.find(SHARE, share.id) is share
    assert await f.rest_bytes() == b"abc"
    assert f.table.find(SHARE, share.id) is None


@contents_test
async def test_memory_is_bounded(f: ContentsFixture) -> None:
    await f.start()
    f.memory.bytes_max = 3 * MIB
    handles = [await f.opened_file(f"f{number}") for number in range(4)]
    highest = 0
    for offset in range(0, 4 * MIB, MIB):
        for handle in handles:
            await f.smb_write(handle, offset, bytes([offset // MIB + 1]) * MIB)
            highest = max(highest, f.memory.used)
    assert highest <= 3 * MIB
    for number in range(4):
        assert await f.rest_bytes(f"f{number}") == b"".join(
            bytes([part + 1]) * MIB for part in range(4)
        )
    assert f.memory.used == 0


@contents_test
async def test_writers_wait_for_a_slow_disk(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file()
    f.watched.gate.clear()

    async def write_all() -> None:
        for number in range(40):
            await f.smb_write(handle, number * MIB, bytes(MIB))

    writer = asyncio.ensure_future(write_all())
    await asyncio.sleep(0.3)
    assert not writer.done()
    assert f.memory.used <= gathering.GATHERED_BYTES_MAX + MIB
    f.watched.gate.set()
    await writer
    await f.flush(handle)
    assert await f.stored_length() == 40 * MIB


@contents_test
async def test_the_last_writer_wins(f: ContentsFixture) -> None:
    await f.start()
    one = await f.opened_file(data=bytes(8))
    two = await opened(await f.connect(), "f", W, Access.READ | Access.WRITE)
    await f.smb_write(one, 0, b"aaaa")
    await f.smb_write(two, 2, b"bbbb")
    await f.smb_write(one, 3, b"c")
    assert await f.rest_bytes() == b"aabcbb\0\0"


@contents_test
async def test_everything_is_stored_at_the_end(f: ContentsFixture) -> None:
    await f.start()
    handles = [await f.opened_file(f"f{number}") for number in range(3)]
    for handle in handles:
        await f.smb_write(handle, 0, b"abc")
    await f.contents.close()
    assert [await f.stored_bytes(f"f{number}") for number in range(3)] == [b"abc"] * 3


@contents_test
async def test_what_cannot_be_stored_is_tried_again_at_the_end(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file()
    await f.smb_write(handle, 0, b"abc")
    f.watched.fault = Unknown("the writer process went away")
    storing = asyncio.ensure_future(f.contents.store_all(10.0))
    await asyncio.sleep(0.05)
    f.watched.fault = None
    await storing
    assert await f.stored_bytes() == b"abc"


@contents_test
async def test_a_file_that_is_deleted_on_close_is_not_stored(f: ContentsFixture) -> None:
    await f.start()
    await f.put("f")
    handle = await opened(f.client, "f", R | W | D, deletes_on_close=True)
    await f.smb_write(handle, 0, b"abc")
    await f.client.close(handle)
    assert f.watched.writes == 0
    assert f.memory.used == 0
    assert not f.client.share.gathered
    assert await f.names() == []
    await f.require_sound()


@contents_test
async def test_a_write_waits_for_memory_that_others_use(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file()
    f.memory.used = f.memory.bytes_max
    written = asyncio.ensure_future(f.smb_write(handle, 0, b"abc"))
    await asyncio.sleep(0.2)
    assert not written.done()
    f.memory.used = 0
    await written
    assert await f.rest_bytes() == b"abc"


@contents_test
async def test_reads_and_writes_follow_a_file_that_is_renamed(f: ContentsFixture) -> None:
    await f.start()
    handle = await f.opened_file(data=b"0123456789")
    is_moved, may_end = asyncio.Event(), asyncio.Event()

    async def rename(source: EntryPath, destination: EntryPath) -> None:
        await f.write(renames.rename_entry, RenameEntry(source, destination, is_directory=False))
        is_moved.set()
        await may_end.wait()

    renaming = asyncio.ensure_future(f.table.rest_rename(path_of("f"), path_of("g"), rename))
    await is_moved.wait()
    waiting = [
        asyncio.ensure_future(f.smb_read(handle)),
        asyncio.ensure_future(f.smb_write(handle, 0, b"abc")),
    ]
    await asyncio.sleep(0.05)
    may_end.set()
    await renaming
    assert await waiting[0] in (b"0123456789", b"abc3456789")
    await waiting[1]
    await f.flush(handle)
    assert await f.smb_read(handle) == await f.rest_bytes("g") == b"abc3456789"


@contents_test
async def test_a_close_reports_that_a_file_was_not_deleted(f: ContentsFixture) -> None:
    engine: Any = f.watched
    f.table = OpenTable(engine)
    await f.start()
    await f.put("f")
    handle = await opened(f.client, "f", R | W | D, deletes_on_close=True)
    await f.smb_write(handle, 0, b"abc")
    f.watched.fault = Unknown("the writer process went away")
    with pytest.raises(Unknown):
        await f.client.close(handle)
    assert not f.client.share.deletions
    f.watched.fault = None
    assert await f.rest_bytes() == b"abc"


@contents_test
async def test_files_that_cannot_be_stored_can_be_deleted_and_replaced(f: ContentsFixture) -> None:
    await f.start()
    for name in ("f", "g"):
        await f.smb_write(await f.opened_file(name), 0, b"abc")
    await f.put("h", b"h")
    f.watched.fault = _FULL
    await f.client.disconnect()
    await f.connect()
    await f.rest_delete("f")
    await f.rest_rename("h", "g", replace=True)
    assert f.memory.used == 0
    assert await f.rest_bytes("g") == b"h"


@contents_test
async def test_writes_do_not_wait_for_memory_that_is_not_freed(f: ContentsFixture) -> None:
    await f.start()
    one, two = await f.opened_file("f"), await f.opened_file("g")
    f.memory.bytes_max = 2 * MIB
    f.watched.fault = _FULL
    await f.smb_write(one, 0, bytes(2 * MIB))
    async with asyncio.timeout(10):
        with pytest.raises(Fault):
            await f.smb_write(two, 0, b"abc")
    f.watched.fault = None
    await f.flush(one)
    await f.smb_write(two, 0, b"abc")
    assert await f.rest_bytes("g") == b"abc"
