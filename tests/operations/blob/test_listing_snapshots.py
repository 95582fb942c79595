"""Listings with snapshots and uncommitted blobs, compared with a straightforward listing."""

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
from tests.operations.blob.fixture import BOX, BlobFixture, blob_property_test, blob_test
from tests.operations.fixture import ACCOUNT
from tests.operations.pages import list_blobs

Row = tuple[str, str, int]
"""A name, its kind, and the snapshot."""


def _row(entry: BlobEntry) -> Row:
    name, found, snapshot = entry
    kind = {Blob: "blob", Staging: "blocks", type(None): "prefix"}[type(found)]
    return name, "snapshot" if snapshot != NO_SNAPSHOT else kind, snapshot


async def _pages(blobs: BlobFixture, ask: ListBlobs) -> AsyncIterator[list[Row]]:
    """Returns all pages, each continued from the previous one."""
    following: tuple[str, int] | None = ("", 0)
    while following is not None:
        start, snapshot = following
        part = replace(ask, start=start, start_snapshot=snapshot)
        page = await blobs.read(list_blobs, part)
        following = page.following
        assert following is None or following > (start, snapshot)
        assert len(page.entries) == ask.limit or following is None
        yield [_row(entry) for entry in page.entries]


async def _listed(blobs: BlobFixture, ask: ListBlobs) -> list[Row]:
    return [row async for page in _pages(blobs, ask) for row in page]


class _NaiveListing:
    """A straightforward model of what there is under each name."""

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


async def _carry_out(blobs: BlobFixture, steps: list[tuple[str, str]]) -> _NaiveListing:
    naive = _NaiveListing()
    for step, name in steps:
        if step == "stage":
            await blobs.stage(name, b"a", b"1")
            naive.stagings.add(name)
        elif step == "put" or name not in naive.blobs:
            await blobs.put(name, b"data")
            naive.blobs.add(name)
            naive.stagings.discard(name)
        elif step == "snapshot":
            naive.snapshots.setdefault(name, []).append(await blobs.snapshot(name))
        else:
            command = DeleteBlob(BlobName(BOX, name), snapshots=DeleteSnapshots.INCLUDE)
            await blobs.write(delete_blob, command)
            naive.blobs.discard(name)
            naive.stagings.discard(name)
            naive.snapshots.pop(name, None)
    return naive


@blob_property_test(STEPS, count=40)
async def test_listings_match_a_model(blobs: BlobFixture, steps: list[tuple[str, str]]) -> None:
    await blobs.create()
    naive = await _carry_out(blobs, steps)
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
                assert await _listed(blobs, ask) == naive.listed(ask), ask
    await blobs.write(delete_container, DeleteContainer(BOX))


@blob_test
async def test_pages_split_the_snapshots_of_a_blob(blobs: BlobFixture) -> None:
    """For every page size, none is lost and none is repeated."""
    await blobs.create()
    neighbour = ContainerName(ACCOUNT, "neighbour")
    await blobs.create(neighbour)
    await blobs.put("a", container=neighbour)
    expected: list[Row] = []
    for name, count in (("a", 5), ("a\x00", 1), ("ab", 0), ("b", 7)):
        await blobs.put(name, b"data")
        expected += [(name, "snapshot", await blobs.snapshot(name)) for _ in range(count)]
        expected.append((name, "blob", NO_SNAPSHOT))
    for limit in range(1, len(expected) + 2):
        pages = [page async for page in _pages(blobs, ListBlobs(BOX, limit, snapshots=True))]
        assert pages == [expected[at : at + limit] for at in range(0, len(expected), limit)]


@blob_test
async def test_a_page_continues_after_a_deleted_row(blobs: BlobFixture) -> None:
    await blobs.create()
    for name in ("a", "b", "c"):
        await blobs.put(name, b"data")
        await blobs.snapshot(name)
    first = await blobs.read(list_blobs, ListBlobs(BOX, 2, snapshots=True))
    assert first.following is not None
    assert first.following[0] == "b"
    command = DeleteBlob(BlobName(BOX, "b"), snapshots=DeleteSnapshots.INCLUDE)
    await blobs.write(delete_blob, command)
    start, snapshot = first.following
    ask = ListBlobs(BOX, 10, start=start, start_snapshot=snapshot, snapshots=True)
    rest = await blobs.read(list_blobs, ask)
    assert [name for name, _, _ in rest.entries] == ["c", "c"]


@blob_test
async def test_blobs_and_blocks_under_one_prefix_are_one_row(blobs: BlobFixture) -> None:
    await blobs.create()
    for number in range(40):
        await blobs.stage(f"dir/{number:02}", b"a", b"1")
        await blobs.put(f"dir/{number:02}x", b"data")
    await blobs.stage("dir", b"a", b"1")
    await blobs.put("dis", b"data")
    for limit in (1, 2, 10):
        ask = ListBlobs(BOX, limit, delimiter="/", uncommitted=True)
        assert await _listed(blobs, ask) == [
            ("dir", "blocks", NO_SNAPSHOT),
            ("dir/", "prefix", NO_SNAPSHOT),
            ("dis", "blob", NO_SNAPSHOT),
        ]
