"""Handles: pages of them, limits, force close, and the memory that they take."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from collections.abc import Callable

import pytest

from etagere.engine.interface import Refused
from etagere.model.bodies import Empty
from etagere.model.files import DirectoryNode, Entry, FileNode, FileTimes
from etagere.opens.caches import LeaseTable
from etagere.opens.handles import Handle
from etagere.opens.share import HandleSupply, ShareOpens
from etagere.opens.table import OpenTable
from etagere.operations.file.tree import LocatedEntry
from etagere.rules.opens import EVERYTHING, HANDLES_MAX, ROOT_HANDLES_MAX, OpenMode
from tests.opens.fixture import SESSION, D, OpensFixture, R, opened, opens_test
from tests.operations.file.fixture import SHARE

MODE = OpenMode(R, EVERYTHING)


async def _never(_path: object, _is_directory: bool) -> None:
    raise AssertionError("nothing is deleted")


def share_opens(handles_max: int = 1_000_000) -> ShareOpens:
    return ShareOpens(SHARE, bytes(16), HandleSupply(1, handles_max), LeaseTable(), _never)


def located(entry_id: int, *directory_ids: int, is_directory: bool = False) -> LocatedEntry:
    node = DirectoryNode() if is_directory else FileNode(Empty())
    parent = directory_ids[-1] if directory_ids else 0
    entry = Entry(str(entry_id), entry_id, parent, 0, 1, FileTimes(0, 0, 0), 0, node)
    names = tuple(str(one) for one in (*directory_ids[1:], entry_id)) if entry_id else ()
    return LocatedEntry(bytes(16), directory_ids or (0,), names, entry)


def ignore(_: Handle) -> None:
    pass


def add(share: ShareOpens, place: LocatedEntry, snapshot: int | None = None) -> Handle:
    return share.open(place, MODE, SESSION, 0, ignore, snapshot=snapshot)


def all_pages(
    share: ShareOpens, entry_id: int, limit: int, between: Callable[[], None] = lambda: None
) -> list[Handle]:
    found: list[Handle] = []
    marker: int | None = 0
    while marker is not None:
        page = share.page(entry_id, marker, limit, is_recursive=True)
        assert len(page.handles) <= limit
        found += page.handles
        marker = page.following
        between()
    return found


def test_handles_are_found_by_entry_and_by_directory() -> None:
    share = share_opens()
    root = add(share, located(0, is_directory=True))
    directory = add(share, located(1, 0, is_directory=True))
    below = add(share, located(2, 0, 1, is_directory=True))
    files = [add(share, located(3, 0, 1, 2)) for _ in range(3)]
    elsewhere = add(share, located(4, 0))
    for entry_id, own, within in (
        (0, [root], [root, directory, below, *files, elsewhere]),
        (1, [directory], [directory, below, *files]),
        (2, [below], [below, *files]),
        (3, files, files),
        (4, [elsewhere], [elsewhere]),
        (5, [], []),
    ):
        assert share.page(entry_id, 0, 100).handles == own
        for limit in (1, 2, 100):
            assert all_pages(share, entry_id, limit) == within
    for entry_id, is_open_below in ((0, True), (1, True), (2, True)):
        assert share.current.is_open_below(entry_id) is is_open_below
    for handle in (*files, below):
        share.close(handle)
    assert not share.current.is_open_below(1)
    assert share.current.is_open_below(0)
    for handle in (root, directory, elsewhere):
        share.close(handle)
    assert share.is_idle
    assert not share.current.entries
    assert not share.current._within


def test_pages_are_stable_while_handles_open_and_close() -> None:
    """Handles that are open all the time are listed once."""
    random_ = random.Random(5)
    share = share_opens()
    stay = [add(share, located(random_.randrange(1, 9), 0)) for _ in range(300)]
    passing = [add(share, located(random_.randrange(1, 9), 0)) for _ in range(300)]

    def between() -> None:
        for _ in range(40):
            if passing:
                share.close(passing.pop(random_.randrange(len(passing))))
            passing.append(add(share, located(random_.randrange(1, 9), 0)))
        if len(passing) > 200:
            del_ = [passing.pop() for _ in range(50)]
            for handle in del_:
                share.close(handle)

    # Handles that are opened meanwhile come last, so this ends only if they do.
    found: list[Handle] = []
    marker: int | None = 0
    for _ in range(60):
        page = share.page(0, marker or 0, 20, is_recursive=True)
        found += page.handles
        marker = page.following
        if marker is None:
            break
        between()
    ids = [handle.id for handle in found]
    assert ids == sorted(set(ids))
    assert set(stay) <= set(found)


def test_limits_of_handles() -> None:
    share = share_opens(handles_max=HANDLES_MAX + ROOT_HANDLES_MAX + 1)
    for place, maximum in ((located(1, 0), HANDLES_MAX), (located(0), ROOT_HANDLES_MAX)):
        handles = [add(share, place) for _ in range(maximum)]
        with pytest.raises(Refused, match="HandleLimitExceeded"):
            add(share, place)
        share.close(handles[0])
        add(share, place)
    add(share, located(2, 0))
    with pytest.raises(Refused, match="HandleLimitExceeded"):
        add(share, located(2, 0))


def test_ids_are_not_used_again() -> None:
    share = share_opens()
    seen = set()
    for _ in range(100):
        handle = add(share, located(1, 0))
        seen.add(handle.id)
        share.close(handle)
        assert share.close(handle) is None
    assert len(seen) == 100


def test_memory_is_bounded_and_returned() -> None:
    """Deep directories cost a number per level and handle."""
    share = share_opens()
    depth = tuple(range(100))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        handles = [add(share, located(1_000 + number, *depth)) for number in range(2_000)]
        taken = tracemalloc.get_traced_memory()[0] - before
        # Per handle: eight bytes per level, its path, and a kibibyte besides.
        assert taken / len(handles) < 100 * 8 + 100 * 4 + 1_280
        while handles:
            share.close(handles.pop())
        # Dictionaries keep their size.
        assert tracemalloc.get_traced_memory()[0] - before < taken / 8
    finally:
        tracemalloc.stop()


def test_opening_and_closing_does_not_grow_indexes() -> None:
    share = share_opens()
    add(share, located(1, 0))
    for _ in range(5_000):
        share.close(add(share, located(1, 0)))
    assert len(share.current._within[0]._ids) < 100


@opens_test
async def test_force_close_tells_the_owner_and_deletes_what_is_pending(f: OpensFixture) -> None:
    await f.create()
    await f.put("file")
    told: list[Handle] = []

    def tell(handle: Handle) -> None:
        told.append(handle)
        raise RuntimeError("a client that is gone")

    client = await f.connect(SESSION, tell)
    handles = [await opened(client, "file"), await opened(client, "file", D)]
    await client.set_delete_pending(handles[1])
    deletions = client.share.force_close([*handles, handles[0]])
    assert told == handles
    assert not client.handles
    assert not any(handle.is_open for handle in handles)
    (deletion,) = deletions
    await deletion
    assert await f.names() == []


@opens_test
async def test_ids_of_a_later_process_are_greater(f: OpensFixture) -> None:
    await f.create()
    await f.put("file")
    first = await opened(await f.connect(), "file")
    await asyncio.sleep(0.002)
    f.table = OpenTable(f.engine)
    second = await opened(await f.connect(), "file")
    assert first.id < second.id < 1 << 63


@opens_test
async def test_many_handles_of_a_deleted_share_are_closed_in_turns(f: OpensFixture) -> None:
    await f.create()
    await f.put("file")
    client = await f.connect()
    handles = [await opened(client, "file", R) for _ in range(600)]
    client.share.drop()
    assert 0 < sum(not one.is_open for one in handles) < 600
    for _ in range(5):
        await asyncio.sleep(0)
    assert not any(one.is_open for one in handles)
    assert not f.table.open_handles


def test_handles_of_a_file_that_is_moved() -> None:
    share = share_opens()
    others = [add(share, located(9, 0, 2)) for _ in range(2)]
    moved = [add(share, located(8, 0, 1, 3)) for _ in range(3)]
    others += [add(share, located(9, 0, 2)) for _ in range(2)]
    moved += [add(share, located(8, 0, 1, 3))]
    tree = share.current
    tree.move(tree.entries[8], (0, 2, 4), "2/4/8")

    def within(directory_id: int) -> list[Handle]:
        return tree.page(directory_id, 0, 100, is_recursive=True).handles

    everything = sorted(others + moved, key=lambda one: one.id)
    assert within(0) == within(2) == everything
    assert within(4) == moved
    assert within(1) == within(3) == []
    assert not tree.is_open_below(1)
    assert add(share, located(8, 0, 2, 4)).entry.directory_ids == (0, 2, 4)
    for handle in list(tree.handles.values()):
        share.close(handle)
    assert not tree._within
