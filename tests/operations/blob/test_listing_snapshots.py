"""Pages of blobs with their snapshots and with blocks that wait, against a listing done by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import product

from hypothesis import strategies as st
from msgspec.structs import replace

from etagere.model.blobs import (
    NO_SNAPSHOT,
    Blob,
    BlobEntry,
    BlobName,
    DeleteBlob,
    DeleteSnapshots,
    ListBlobs,
    Staging,
)
from etagere.model.containers import ContainerName, DeleteContainer
from etagere.operations.blob.blobs import delete_blob
from etagere.operations.blob.containers import delete_container
from tests.operations.blob.shelf import ACCOUNT, BOX, Shelf, on_a_shelf, on_a_shelf_for_any
from tests.operations.pages import list_blobs

Row = tuple[str, str, int]
"""A name, what it is, and which snapshot."""


def _row(entry: BlobEntry) -> Row:
    name, found, snapshot = entry
    kind = {Blob: "blob", Staging: "blocks", type(None): "prefix"}[type(found)]
    return name, "snapshot" if snapshot != NO_SNAPSHOT else kind, snapshot


async def _pages(shelf: Shelf, ask: ListBlobs) -> AsyncIterator[list[Row]]:
    """Page after page, each from where the one before says."""
    following: tuple[str, int] | None = ("", 0)
    while following is not None:
        start, snapshot = following
        part = replace(ask, start=start, start_snapshot=snapshot)
        page = await shelf.read(list_blobs, part)
        following = page.following
        assert following is None or following > (start, snapshot)
        assert len(page.entries) == ask.limit or following is None
        yield [_row(entry) for entry in page.entries]


async def _listed(shelf: Shelf, ask: ListBlobs) -> list[Row]:
    return [row async for page in _pages(shelf, ask) for row in page]


class _ByHand:
    """What there is under each name, listed the slow way."""

    def __init__(self) -> None:
        self.blobs: set[str] = set()
        self.snapshots: dict[str, list[int]] = {}
        self.stagings: set[str] = set()

    def listed(self, ask: ListBlobs) -> list[Row]:
        rows: list[Row] = []
        waiting = self.stagings - self.blobs if ask.uncommitted else set()
        for name in sorted(self.blobs | waiting, key=str.encode):
            if not name.startswith(ask.prefix) or (ask.end and name >= ask.end):
                continue
            end = name.find(ask.delimiter, len(ask.prefix)) if ask.delimiter else -1
            if end >= 0:
                row = (name[: end + len(ask.delimiter)], "prefix", NO_SNAPSHOT)
                rows += [row] if row not in rows else []
                continue
            if ask.snapshots:
                rows += [(name, "snapshot", taken) for taken in self.snapshots.get(name, [])]
            rows.append((name, "blob" if name in self.blobs else "blocks", NO_SNAPSHOT))
        return rows


NAMES = st.sampled_from(["a", "a/", "a/b", "a/c", "a\x00", "a\x00/b", "b", "b/c/d", "é", "日本/1"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "snapshot", "stage", "delete"]), NAMES),
    min_size=1,
    max_size=18,
)


async def _carry_out(shelf: Shelf, steps: list[tuple[str, str]]) -> _ByHand:
    by_hand = _ByHand()
    for step, name in steps:
        if step == "stage":
            await shelf.stage(name, b"a", b"1")
            by_hand.stagings.add(name)
        elif step == "put" or name not in by_hand.blobs:
            await shelf.put(name, b"data")
            by_hand.blobs.add(name)
            by_hand.stagings.discard(name)
        elif step == "snapshot":
            by_hand.snapshots.setdefault(name, []).append(await shelf.snapshot(name))
        else:
            command = DeleteBlob(BlobName(BOX, name), snapshots=DeleteSnapshots.INCLUDE)
            await shelf.write(delete_blob, command)
            by_hand.blobs.discard(name)
            by_hand.stagings.discard(name)
            by_hand.snapshots.pop(name, None)
    return by_hand


@on_a_shelf_for_any(STEPS, count=40)
async def test_every_listing_is_the_one_done_by_hand(
    shelf: Shelf, steps: list[tuple[str, str]]
) -> None:
    await shelf.create()
    by_hand = await _carry_out(shelf, steps)
    for prefix, end, waiting in product(("", "a", "a/"), ("", "a/c"), (False, True)):
        for delimiter, snapshots in (("", False), ("", True), ("/", False)):
            for limit in (1, 2, 3, 100):
                ask = ListBlobs(
                    BOX,
                    limit,
                    prefix,
                    delimiter,
                    end=end,
                    snapshots=snapshots,
                    uncommitted=waiting,
                )
                assert await _listed(shelf, ask) == by_hand.listed(ask), ask
    await shelf.write(delete_container, DeleteContainer(BOX))


@on_a_shelf
async def test_pages_begin_and_end_among_the_snapshots_of_a_name(shelf: Shelf) -> None:
    """Whatever the size of a page, none is lost and none is shown twice."""
    await shelf.create()
    neighbour = ContainerName(ACCOUNT, "neighbour")
    await shelf.create(neighbour)
    await shelf.put("a", container=neighbour)
    expected: list[Row] = []
    for name, count in (("a", 5), ("a\x00", 1), ("ab", 0), ("b", 7)):
        await shelf.put(name, b"data")
        expected += [(name, "snapshot", await shelf.snapshot(name)) for _ in range(count)]
        expected.append((name, "blob", NO_SNAPSHOT))
    for limit in range(1, len(expected) + 2):
        pages = [page async for page in _pages(shelf, ListBlobs(BOX, limit, snapshots=True))]
        assert pages == [expected[at : at + limit] for at in range(0, len(expected), limit)]


@on_a_shelf
async def test_a_page_goes_on_though_what_it_begins_with_is_gone(shelf: Shelf) -> None:
    await shelf.create()
    for name in ("a", "b", "c"):
        await shelf.put(name, b"data")
        await shelf.snapshot(name)
    first = await shelf.read(list_blobs, ListBlobs(BOX, 2, snapshots=True))
    assert first.following is not None
    assert first.following[0] == "b"
    command = DeleteBlob(BlobName(BOX, "b"), snapshots=DeleteSnapshots.INCLUDE)
    await shelf.write(delete_blob, command)
    start, snapshot = first.following
    ask = ListBlobs(BOX, 10, start=start, start_snapshot=snapshot, snapshots=True)
    rest = await shelf.read(list_blobs, ask)
    assert [name for name, _, _ in rest.entries] == ["c", "c"]


@on_a_shelf
async def test_blobs_and_blocks_under_one_prefix_are_one_row(shelf: Shelf) -> None:
    await shelf.create()
    for number in range(40):
        await shelf.stage(f"dir/{number:02}", b"a", b"1")
        await shelf.put(f"dir/{number:02}x", b"data")
    await shelf.stage("dir", b"a", b"1")
    await shelf.put("dis", b"data")
    for limit in (1, 2, 10):
        ask = ListBlobs(BOX, limit, delimiter="/", uncommitted=True)
        assert await _listed(shelf, ask) == [
            ("dir", "blocks", NO_SNAPSHOT),
            ("dir/", "prefix", NO_SNAPSHOT),
            ("dis", "blob", NO_SNAPSHOT),
        ]
