"""Page blobs with every engine: writes, clears, page ranges, differences and sequence numbers."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from etagere.model.blobs import (
    Blob,
    BlobKind,
    BlobName,
    DeleteBlob,
    DeleteSnapshots,
    GetBlob,
    PageTraits,
    PutBlob,
    SetBlobHeaders,
)
from etagere.model.bodies import Body
from etagere.model.common import ContentHeaders
from etagere.model.conditions import Conditions
from etagere.model.ids import new_id
from etagere.model.leases import Acquire, new_lease_id
from etagere.model.page_blobs import (
    ClearPages,
    GetPageRanges,
    PageRange,
    PageRangesResult,
    PutPage,
    SequenceAction,
    SequenceChange,
    SequenceConditions,
    SetPageBlobProperties,
)
from etagere.operations.blob.blobs import delete_blob, put_blob, set_blob_headers
from etagere.operations.blob.page_blobs import (
    clear_pages,
    get_page_ranges,
    precheck_page,
    put_page,
    set_page_blob_properties,
)
from etagere.rules.conditions import format_etag
from etagere.rules.page_blobs import PAGE_BLOB_BYTES_MAX, PAGE_BYTES, SEQUENCE_NUMBER_MAX
from tests.operations.blob.fixture import BOX, NOTHING_SENT, BlobFixture, blob_test
from tests.operations.fixture import code_of

NAME = BlobName(BOX, "disk")
MISSING = BlobName(BOX, "missing")
PAGE = PAGE_BYTES
UNMET = "SequenceNumberConditionNotMet"


async def _begin(blobs: BlobFixture, pages: int = 8, sequence_number: int = 0) -> Blob:
    await blobs.create()
    return await _put(blobs, pages * PAGE, sequence_number)


async def _put(blobs: BlobFixture, length: int, sequence_number: int = 0) -> Blob:
    command = PutBlob(
        NAME,
        NOTHING_SENT,
        kind=BlobKind.PAGE,
        content_id=new_id(),
        length=length,
        sequence_number=sequence_number,
    )
    return await blobs.write(put_blob, command)


async def _write(
    blobs: BlobFixture, page: int, data: bytes, name: BlobName = NAME, **asked: Any
) -> Blob:
    async with blobs.store.writer(len(data), inline=False) as writer:
        await writer.append(data)
        command = PutPage(name, page * PAGE, await writer.seal(), new_id(), **asked)
        return await blobs.write(put_page, command)


async def _clear(
    blobs: BlobFixture, first: int, behind: int, name: BlobName = NAME, **asked: Any
) -> Blob:
    command = ClearPages(name, first * PAGE, behind * PAGE, new_id(), **asked)
    return await blobs.write(clear_pages, command)


async def _set(blobs: BlobFixture, name: BlobName = NAME, **asked: Any) -> Blob:
    return await blobs.write(
        set_page_blob_properties, SetPageBlobProperties(name, new_id(), **asked)
    )


async def _page_ranges(
    blobs: BlobFixture, snapshot: int | None = None, limit: int = 100, **asked: Any
) -> PageRangesResult:
    ask = GetBlob(NAME, snapshot=snapshot)
    return await blobs.read(get_page_ranges, GetPageRanges(ask, limit, **asked))


async def _ranges(blobs: BlobFixture, snapshot: int | None = None, **asked: Any) -> list[Any]:
    """Returns page numbers: written ranges as pairs, cleared ranges with a mark."""
    found = []
    for result in (await _page_ranges(blobs, snapshot, **asked)).ranges:
        pages = result.start // PAGE, result.end // PAGE
        found.append(pages if result.written else (*pages, "cleared"))
    return found


# Writing and clearing


@blob_test
async def test_pages_are_written_and_cleared(blobs: BlobFixture) -> None:
    made = await _begin(blobs)
    assert made.traits == PageTraits()
    assert await blobs.get("disk") == bytes(8 * PAGE)
    assert await _ranges(blobs) == []
    await _write(blobs, 1, b"a" * 3 * PAGE)
    await _write(blobs, 2, b"b" * PAGE)
    await _write(blobs, 6, b"c" * 2 * PAGE)
    changed = await _clear(blobs, 3, 7)
    assert changed.content.length == 8 * PAGE
    assert changed.stamp > made.stamp
    pages = [b"\0", b"a", b"b", b"\0", b"\0", b"\0", b"\0", b"c"]
    assert await blobs.get("disk") == b"".join(page * PAGE for page in pages)
    assert await blobs.get("disk", PAGE - 1, 2 * PAGE) == b"\0" + b"a" * PAGE + b"b"
    assert await _ranges(blobs) == [(1, 3), (7, 8)]
    await blobs.require_sound()
    await blobs.write(delete_blob, DeleteBlob(NAME))
    await blobs.require_empty()


@blob_test
async def test_overlapping_writes_are_never_torn(blobs: BlobFixture) -> None:
    await _begin(blobs, 4)
    datas = [bytes([65 + number]) * 4 * PAGE for number in range(8)]
    done = await asyncio.gather(*(_write(blobs, 0, data) for data in datas))
    last = max(range(8), key=lambda number: done[number].stamp)
    assert await blobs.get("disk") == datas[last]
    await blobs.require_sound()


@blob_test
async def test_an_empty_blob_of_maximum_size_costs_nothing(blobs: BlobFixture) -> None:
    await blobs.create()
    await _put(blobs, PAGE_BLOB_BYTES_MAX)
    last = PAGE_BLOB_BYTES_MAX // PAGE - 1
    await _write(blobs, last, b"z" * PAGE)
    assert await blobs.get("disk", PAGE_BLOB_BYTES_MAX - PAGE) == b"z" * PAGE
    assert await _ranges(blobs) == [(last, last + 1)]
    moment = await blobs.snapshot("disk")
    await _clear(blobs, last, last + 1)
    assert await _ranges(blobs, previous=moment) == [(last, last + 1, "cleared")]
    await _clear(blobs, 0, last + 1)
    assert await _ranges(blobs) == []
    await blobs.require_sound()


# Preconditions


@blob_test
async def test_refused_writes_change_nothing(blobs: BlobFixture) -> None:
    blob = await _begin(blobs, 2, 5)
    await blobs.put("block blob", bytes(2 * PAGE))
    other = Conditions(if_match=('"0x1"',))
    for code, name, page, asked in (
        ("BlobNotFound", MISSING, 0, {}),
        ("InvalidBlobType", BlobName(BOX, "block blob"), 0, {}),
        ("ConditionNotMet", NAME, 0, {"conditions": other}),
        ("ConditionNotMet", NAME, 2, {"conditions": other}),
        ("InvalidPageRange", NAME, 2, {}),
        ("InvalidPageRange", NAME, 2**50, {}),
        (UNMET, NAME, 0, {"sequence": SequenceConditions(at_most=4)}),
        (UNMET, NAME, 0, {"sequence": SequenceConditions(below=5)}),
        (UNMET, NAME, 0, {"sequence": SequenceConditions(equal=6)}),
        ("LeaseNotPresentWithBlobOperation", NAME, 0, {"lease_id": new_lease_id()}),
    ):
        announced = PutPage(name, page * PAGE, Body(b"", PAGE, 0), new_id(), **asked)
        assert await code_of(blobs.read(precheck_page, announced)) == code
        assert await code_of(_write(blobs, page, b"x" * PAGE, name, **asked)) == code
        assert await code_of(_clear(blobs, page, page + 1, name, **asked)) == code
    assert await blobs.get("disk") == bytes(2 * PAGE)
    met: dict[str, Any] = {
        "conditions": Conditions(if_match=(format_etag(blob.stamp),)),
        "sequence": SequenceConditions(5, 6, 5),
    }
    written = await _write(blobs, 1, b"x" * PAGE, **met)
    assert written.traits == PageTraits(5)
    assert await blobs.get("disk") == bytes(PAGE) + b"x" * PAGE
    await blobs.require_sound()


@blob_test
async def test_a_lease_excludes_other_writers(blobs: BlobFixture) -> None:
    await _begin(blobs, 2)
    lease_id = new_lease_id()
    await blobs.lease("disk", Acquire(lease_id, None))
    for call in (_write(blobs, 0, b"x" * PAGE), _clear(blobs, 0, 1), _set(blobs, length=0)):
        assert await code_of(call) == "LeaseIdMissing"
    await _write(blobs, 0, b"x" * PAGE, lease_id=lease_id)
    await _clear(blobs, 0, 1, lease_id=lease_id)
    await _set(blobs, length=PAGE, lease_id=lease_id)


# Properties


@blob_test
async def test_properties_of_page_blobs(blobs: BlobFixture) -> None:
    await _begin(blobs, 4)
    update, most = SequenceAction.UPDATE, SequenceAction.MAX
    for change, number in (
        (SequenceChange(update, 7), 7),
        (SequenceChange(most, 3), 7),
        (SequenceChange(most, 9), 9),
        (SequenceChange(SequenceAction.INCREMENT), 10),
        (SequenceChange(update, SEQUENCE_NUMBER_MAX), SEQUENCE_NUMBER_MAX),
    ):
        assert (await _set(blobs, sequence=change)).traits == PageTraits(number)
    too_large = _set(blobs, length=0, sequence=SequenceChange(SequenceAction.INCREMENT))
    assert await code_of(too_large) == "SequenceNumberIncrementTooLarge"
    headers = ContentHeaders("text/plain", cache_control="none")
    described = await blobs.write(set_blob_headers, SetBlobHeaders(NAME, headers))
    assert described.traits == PageTraits(SEQUENCE_NUMBER_MAX)
    resized = await _set(blobs, length=2 * PAGE)
    assert (resized.headers, resized.traits) == (headers, described.traits)
    assert resized.content.length == 2 * PAGE
    both = await _set(blobs, headers=ContentHeaders("a/b"), sequence=SequenceChange(update, 1))
    assert (both.headers, both.traits) == (ContentHeaders("a/b"), PageTraits(1))
    await blobs.put("block blob", b"")
    other = _set(blobs, BlobName(BOX, "block blob"), length=0)
    assert await code_of(other) == "UnsupportedHeader"
    other = _set(blobs, BlobName(BOX, "block blob"), sequence=SequenceChange(update, 1))
    assert await code_of(other) == "InvalidBlobType"
    assert await code_of(_set(blobs, MISSING, length=0)) == "BlobNotFound"


@blob_test
async def test_truncated_pages_read_as_zeros_after_growing(blobs: BlobFixture) -> None:
    await _begin(blobs, 4)
    await _write(blobs, 0, b"x" * 4 * PAGE)
    moment = await blobs.snapshot("disk")
    await _set(blobs, length=PAGE)
    assert await blobs.get("disk") == b"x" * PAGE
    assert await code_of(_write(blobs, 1, b"y" * PAGE)) == "InvalidPageRange"
    await _set(blobs, length=6 * PAGE)
    assert await blobs.get("disk") == b"x" * PAGE + bytes(5 * PAGE)
    assert await _ranges(blobs) == [(0, 1)]
    assert await blobs.get("disk", snapshot=moment) == b"x" * 4 * PAGE
    await blobs.require_sound()
    await blobs.write(delete_blob, DeleteBlob(NAME, snapshots=DeleteSnapshots.INCLUDE))
    await blobs.require_empty()


# Page ranges


@blob_test
async def test_ranges_in_pages(blobs: BlobFixture) -> None:
    await _begin(blobs, 20)
    for page in range(0, 20, 2):
        await _write(blobs, page, b"x" * PAGE)
    expected = [PageRange(page * PAGE, (page + 1) * PAGE) for page in range(0, 20, 2)]
    for limit in (1, 3, 10, 11):
        found: list[PageRange] = []
        following: int | None = 0
        while following is not None:
            result = await _page_ranges(blobs, limit=limit, start=following)
            assert 0 < len(result.ranges) <= limit
            found += result.ranges
            following = result.following
        assert found == expected


@blob_test
async def test_ranges_of_a_range(blobs: BlobFixture) -> None:
    await _begin(blobs, 8)
    await _write(blobs, 1, b"x" * 5 * PAGE)
    for first, last, pages in (
        (0, None, [(1, 6)]),
        (0, PAGE - 1, []),
        (0, PAGE, [(1, 2)]),
        (2 * PAGE, 4 * PAGE - 1, [(2, 4)]),
        (2 * PAGE + 1, 4 * PAGE, [(2, 5)]),
        (5 * PAGE, 10**18, [(5, 6)]),
        (6 * PAGE, None, []),
    ):
        assert await _ranges(blobs, first=first, last=last) == pages, (first, last)
    assert await code_of(_page_ranges(blobs, first=8 * PAGE)) == "InvalidRange"


@blob_test
async def test_blobs_without_ranges(blobs: BlobFixture) -> None:
    await _begin(blobs, 0)
    assert await _ranges(blobs) == []
    await blobs.put("block blob", b"data")
    for name, code in ((BlobName(BOX, "block blob"), "InvalidBlobType"), (MISSING, "BlobNotFound")):
        ask = GetPageRanges(GetBlob(name), 10)
        assert await code_of(blobs.read(get_page_ranges, ask)) == code


# Differences


@blob_test
async def test_differences_since_a_snapshot(blobs: BlobFixture) -> None:
    await _begin(blobs, 8)
    await _write(blobs, 0, b"a" * 4 * PAGE)
    first = await blobs.snapshot("disk")
    assert await _ranges(blobs, previous=first) == []
    await _write(blobs, 1, b"b" * PAGE)
    await _clear(blobs, 3, 4)
    second = await blobs.snapshot("disk")
    await _write(blobs, 6, b"c" * PAGE)
    assert await _ranges(blobs, previous=first) == [(1, 2), (3, 4, "cleared"), (6, 7)]
    assert await _ranges(blobs, second, previous=first) == [(1, 2), (3, 4, "cleared")]
    assert await _ranges(blobs, previous=second) == [(6, 7)]
    assert await _ranges(blobs, previous=first, first=2 * PAGE, last=4 * PAGE - 1) == [
        (3, 4, "cleared")
    ]
    result = await _page_ranges(blobs, previous=first, limit=1)
    assert (len(result.ranges), result.following) == (1, 3 * PAGE)
    # Pages that were written and cleared since are listed, although they are zero in both.
    await _write(blobs, 7, b"d" * PAGE)
    await _clear(blobs, 7, 8)
    assert await _ranges(blobs, previous=second) == [(6, 7), (7, 8, "cleared")]
    newer = _page_ranges(blobs, first, previous=second)
    assert await code_of(newer) == "PreviousSnapshotCannotBeNewer"
    assert await code_of(_page_ranges(blobs, previous=first + 1)) == "PreviousSnapshotNotFound"
    await _put(blobs, 8 * PAGE)
    assert await code_of(_page_ranges(blobs, previous=second)) == "BlobOverwritten"
    assert await _ranges(blobs, second, previous=first) == [(1, 2), (3, 4, "cleared")]
    await blobs.require_sound()


@blob_test
async def test_ranges_match_a_model(blobs: BlobFixture) -> None:
    """Compares with a list of pages that store when each was last changed."""
    await _begin(blobs, 16)
    source = random.Random(7)
    content = [0] * 16
    kept: dict[int, list[int]] = {}
    for _ in range(60):
        first = source.randrange(16)
        behind = source.randrange(first, 16) + 1
        step = source.randrange(4)
        if step < 2:
            letter = source.randrange(1, 256)
            await _write(blobs, first, bytes([letter]) * (behind - first) * PAGE)
            content[first:behind] = [letter] * (behind - first)
        elif step == 2:
            await _clear(blobs, first, behind)
            content[first:behind] = [0] * (behind - first)
        elif len(kept) < 5:
            kept[await blobs.snapshot("disk")] = list(content)
        for moment, pages in (*kept.items(), (None, content)):
            data = await blobs.get("disk", snapshot=moment)
            assert data == b"".join(bytes([page]) * PAGE for page in pages)
            written = {
                page for start, end in await _ranges(blobs, moment) for page in range(start, end)
            }
            assert written == {number for number, page in enumerate(pages) if page}
    for moment, pages in kept.items():
        changed = {
            page for result in await _ranges(blobs, previous=moment) for page in range(*result[:2])
        }
        assert changed >= {number for number in range(16) if pages[number] != content[number]}
    await blobs.require_sound()
    await blobs.write(delete_blob, DeleteBlob(NAME, snapshots=DeleteSnapshots.INCLUDE))
    await blobs.require_empty()
