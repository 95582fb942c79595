"""Pages of blob listings with every engine, compared with a straightforward listing."""

from __future__ import annotations

import itertools

from etagere.engine.interface import ReadTxn
from etagere.model.blobs import NO_SNAPSHOT, BlobEntry, ListBlobs
from etagere.model.containers import ContainerName
from etagere.operations.blob import listing
from tests.operations.blob.fixture import BOX, BlobFixture, blob_test
from tests.operations.counting import CountingTxn
from tests.operations.fixture import ACCOUNT, code_of
from tests.operations.pages import BlobPage, filled, list_blobs

NAMES = sorted(
    [
        "a",
        "a/",
        "a/b",
        "a/b/c",
        "a/b/d",
        "a0",
        "b",
        "c//x",
        "c/x",
        "d.e.f",
        "nul\x00name",
        "photos/2024/1.jpg",
        "photos/2024/2.jpg",
        "photos/2025/1.jpg",
        "z",
        "é",
        "日本/1",
        "日本/2",
        "\U0001f4da",
    ],
    key=str.encode,
)


def by_hand(prefix: str, delimiter: str) -> list[str]:
    shown: list[str] = []
    for name in NAMES:
        if not name.startswith(prefix):
            continue
        end = name.find(delimiter, len(prefix)) if delimiter else -1
        entry = name[: end + len(delimiter)] if end >= 0 else name
        if entry not in shown[-1:]:
            shown.append(entry)
    return shown


@blob_test
async def test_every_prefix_delimiter_and_page_size(blobs: BlobFixture) -> None:
    await blobs.create()
    neighbour = ContainerName(ACCOUNT, "neighbour")
    await blobs.create(neighbour)
    await blobs.put("a/other", container=neighbour)
    for name in NAMES:
        await blobs.put(name, name.encode())
    prefixes = ["", "a", "a/", "a/b/", "photos/", "photos/2024/1", "日本", "nothing"]
    for prefix, delimiter, limit in itertools.product(prefixes, ["", "/", "//", "."], [1, 2, 5000]):
        found: list[str] = []
        start = ""
        while True:
            ask = ListBlobs(BOX, limit, prefix, delimiter, start)
            page = await blobs.read(list_blobs, ask)
            assert len(page.entries) <= limit
            found += [name for name, _, _ in page.entries]
            if page.following is None:
                break
            assert page.entries
            start, snapshot = page.following
            assert snapshot == NO_SNAPSHOT
        assert found == by_hand(prefix, delimiter), (prefix, delimiter, limit)


@blob_test
async def test_common_prefixes_have_no_blob(blobs: BlobFixture) -> None:
    await blobs.create()
    put = await blobs.put("a", b"x")
    await blobs.put("b/1")
    page = await blobs.read(list_blobs, ListBlobs(BOX, 10, delimiter="/"))
    assert page.entries == (("a", put, NO_SNAPSHOT), ("b/", None, NO_SNAPSHOT))
    missing = ListBlobs(ContainerName(ACCOUNT, "missing"), 10)
    assert await code_of(blobs.read(list_blobs, missing)) == "ContainerNotFound"


def _counted(txn: ReadTxn, command: ListBlobs) -> tuple[BlobPage, int]:
    counting = CountingTxn(txn)
    return list_blobs(counting, command), counting.rows


@blob_test
async def test_cost_of_a_delimiter_listing_follows_its_prefixes(blobs: BlobFixture) -> None:
    await blobs.create()
    for folder, number in itertools.product(range(5), range(120)):
        await blobs.put(f"{folder}/{number:03}")
    page, rows = await blobs.read(_counted, ListBlobs(BOX, 100, delimiter="/"))
    assert [name for name, _, _ in page.entries] == [f"{folder}/" for folder in range(5)]
    assert rows <= 5 * 16
    page, rows = await blobs.read(_counted, ListBlobs(BOX, 5000, prefix="3/", delimiter="/"))
    assert len(page.entries) == 120
    assert rows <= 2 * 120 + 16


@blob_test
async def test_few_rows_are_read_per_prefix(blobs: BlobFixture) -> None:
    await blobs.create()
    names = [f"{folder:03}/{number}" for folder, number in itertools.product(range(60), range(8))]
    for name in [*names, "few/1", "flat"]:
        await blobs.put(name)
    page, rows = await blobs.read(_counted, ListBlobs(BOX, 5000, delimiter="/"))
    assert len(page.entries) == 62
    assert rows <= 3 * 62 + 16
    entries, following = await blobs.read(_full_after_seven, ListBlobs(BOX, 5000, delimiter="/"))
    assert [name for name, _, _ in entries] == [f"{folder:03}/" for folder in range(7)]
    assert following == ("007/", None, NO_SNAPSHOT)


def _full_after_seven(
    txn: ReadTxn, asked: ListBlobs
) -> tuple[tuple[BlobEntry, ...], BlobEntry | None]:
    return filled(txn, listing.list_blobs, asked, room=7)
