"""Page blobs over every engine: pages written, cleared, told and compared, and sequence numbers."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from etagere.model.blobs import (
    Blob,
    BlobHeaders,
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
from tests.operations.blob.shelf import BOX, NOTHING_SENT, Shelf, code_of, on_a_shelf

NAME = BlobName(BOX, "disk")
MISSING = BlobName(BOX, "missing")
PAGE = PAGE_BYTES
UNMET = "SequenceNumberConditionNotMet"


async def _begin(shelf: Shelf, pages: int = 8, sequence_number: int = 0) -> Blob:
    await shelf.create()
    return await _put(shelf, pages * PAGE, sequence_number)


async def _put(shelf: Shelf, length: int, sequence_number: int = 0) -> Blob:
    command = PutBlob(
        NAME,
        NOTHING_SENT,
        kind=BlobKind.PAGE,
        content_id=new_id(),
        length=length,
        sequence_number=sequence_number,
    )
    return await shelf.write(put_blob, command)


async def _write(shelf: Shelf, page: int, data: bytes, name: BlobName = NAME, **asked: Any) -> Blob:
    async with shelf.store.writer(len(data), inline=False) as writer:
        await writer.append(data)
        command = PutPage(name, page * PAGE, await writer.seal(), new_id(), **asked)
        return await shelf.write(put_page, command)


async def _clear(
    shelf: Shelf, first: int, behind: int, name: BlobName = NAME, **asked: Any
) -> Blob:
    command = ClearPages(name, first * PAGE, behind * PAGE, new_id(), **asked)
    return await shelf.write(clear_pages, command)


async def _set(shelf: Shelf, name: BlobName = NAME, **asked: Any) -> Blob:
    return await shelf.write(
        set_page_blob_properties, SetPageBlobProperties(name, new_id(), **asked)
    )


async def _told(
    shelf: Shelf, snapshot: int | None = None, limit: int = 100, **asked: Any
) -> PageRangesResult:
    ask = GetBlob(NAME, snapshot=snapshot)
    return await shelf.read(get_page_ranges, GetPageRanges(ask, limit, **asked))


async def _ranges(shelf: Shelf, snapshot: int | None = None, **asked: Any) -> list[Any]:
    """In pages: those written as pairs, those cleared with a mark."""
    found = []
    for told in (await _told(shelf, snapshot, **asked)).ranges:
        pages = told.start // PAGE, told.end // PAGE
        found.append(pages if told.written else (*pages, "cleared"))
    return found


# Written and cleared


@on_a_shelf
async def test_pages_are_written_and_cleared(shelf: Shelf) -> None:
    made = await _begin(shelf)
    assert made.traits == PageTraits()
    assert await shelf.get("disk") == bytes(8 * PAGE)
    assert await _ranges(shelf) == []
    await _write(shelf, 1, b"a" * 3 * PAGE)
    await _write(shelf, 2, b"b" * PAGE)
    await _write(shelf, 6, b"c" * 2 * PAGE)
    changed = await _clear(shelf, 3, 7)
    assert changed.content.length == 8 * PAGE
    assert changed.stamp > made.stamp
    pages = [b"\0", b"a", b"b", b"\0", b"\0", b"\0", b"\0", b"c"]
    assert await shelf.get("disk") == b"".join(page * PAGE for page in pages)
    assert await shelf.get("disk", PAGE - 1, 2 * PAGE) == b"\0" + b"a" * PAGE + b"b"
    assert await _ranges(shelf) == [(1, 3), (7, 8)]
    await shelf.require_sound()
    await shelf.write(delete_blob, DeleteBlob(NAME))
    await shelf.require_bare()


@on_a_shelf
async def test_overlapping_writes_are_never_torn(shelf: Shelf) -> None:
    await _begin(shelf, 4)
    datas = [bytes([65 + number]) * 4 * PAGE for number in range(8)]
    done = await asyncio.gather(*(_write(shelf, 0, data) for data in datas))
    last = max(range(8), key=lambda number: done[number].stamp)
    assert await shelf.get("disk") == datas[last]
    await shelf.require_sound()


@on_a_shelf
async def test_the_largest_costs_nothing(shelf: Shelf) -> None:
    await shelf.create()
    await _put(shelf, PAGE_BLOB_BYTES_MAX)
    last = PAGE_BLOB_BYTES_MAX // PAGE - 1
    await _write(shelf, last, b"z" * PAGE)
    assert await shelf.get("disk", PAGE_BLOB_BYTES_MAX - PAGE) == b"z" * PAGE
    assert await _ranges(shelf) == [(last, last + 1)]
    moment = await shelf.snapshot("disk")
    await _clear(shelf, last, last + 1)
    assert await _ranges(shelf, previous=moment) == [(last, last + 1, "cleared")]
    await _clear(shelf, 0, last + 1)
    assert await _ranges(shelf) == []
    await shelf.require_sound()


# On what terms


@on_a_shelf
async def test_what_is_refused_changes_nothing(shelf: Shelf) -> None:
    blob = await _begin(shelf, 2, 5)
    await shelf.put("block blob", bytes(2 * PAGE))
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
        assert await code_of(shelf.read(precheck_page, announced)) == code
        assert await code_of(_write(shelf, page, b"x" * PAGE, name, **asked)) == code
        assert await code_of(_clear(shelf, page, page + 1, name, **asked)) == code
    assert await shelf.get("disk") == bytes(2 * PAGE)
    met: dict[str, Any] = {
        "conditions": Conditions(if_match=(format_etag(blob.stamp),)),
        "sequence": SequenceConditions(5, 6, 5),
    }
    written = await _write(shelf, 1, b"x" * PAGE, **met)
    assert written.traits == PageTraits(5)
    assert await shelf.get("disk") == bytes(PAGE) + b"x" * PAGE
    await shelf.require_sound()


@on_a_shelf
async def test_a_lease_keeps_others_away(shelf: Shelf) -> None:
    await _begin(shelf, 2)
    lease_id = new_lease_id()
    await shelf.lease("disk", Acquire(lease_id, None))
    for call in (_write(shelf, 0, b"x" * PAGE), _clear(shelf, 0, 1), _set(shelf, length=0)):
        assert await code_of(call) == "LeaseIdMissing"
    await _write(shelf, 0, b"x" * PAGE, lease_id=lease_id)
    await _clear(shelf, 0, 1, lease_id=lease_id)
    await _set(shelf, length=PAGE, lease_id=lease_id)


# Properties


@on_a_shelf
async def test_properties_of_page_blobs(shelf: Shelf) -> None:
    await _begin(shelf, 4)
    update, most = SequenceAction.UPDATE, SequenceAction.MAX
    for change, number in (
        (SequenceChange(update, 7), 7),
        (SequenceChange(most, 3), 7),
        (SequenceChange(most, 9), 9),
        (SequenceChange(SequenceAction.INCREMENT), 10),
        (SequenceChange(update, SEQUENCE_NUMBER_MAX), SEQUENCE_NUMBER_MAX),
    ):
        assert (await _set(shelf, sequence=change)).traits == PageTraits(number)
    too_large = _set(shelf, length=0, sequence=SequenceChange(SequenceAction.INCREMENT))
    assert await code_of(too_large) == "SequenceNumberIncrementTooLarge"
    headers = BlobHeaders("text/plain", cache_control="none")
    described = await shelf.write(set_blob_headers, SetBlobHeaders(NAME, headers))
    assert described.traits == PageTraits(SEQUENCE_NUMBER_MAX)
    resized = await _set(shelf, length=2 * PAGE)
    assert (resized.headers, resized.traits) == (headers, described.traits)
    assert resized.content.length == 2 * PAGE
    both = await _set(shelf, headers=BlobHeaders("a/b"), sequence=SequenceChange(update, 1))
    assert (both.headers, both.traits) == (BlobHeaders("a/b"), PageTraits(1))
    await shelf.put("block blob", b"")
    other = _set(shelf, BlobName(BOX, "block blob"), length=0)
    assert await code_of(other) == "UnsupportedHeader"
    other = _set(shelf, BlobName(BOX, "block blob"), sequence=SequenceChange(update, 1))
    assert await code_of(other) == "InvalidBlobType"
    assert await code_of(_set(shelf, MISSING, length=0)) == "BlobNotFound"


@on_a_shelf
async def test_what_was_cut_off_does_not_come_back(shelf: Shelf) -> None:
    await _begin(shelf, 4)
    await _write(shelf, 0, b"x" * 4 * PAGE)
    moment = await shelf.snapshot("disk")
    await _set(shelf, length=PAGE)
    assert await shelf.get("disk") == b"x" * PAGE
    assert await code_of(_write(shelf, 1, b"y" * PAGE)) == "InvalidPageRange"
    await _set(shelf, length=6 * PAGE)
    assert await shelf.get("disk") == b"x" * PAGE + bytes(5 * PAGE)
    assert await _ranges(shelf) == [(0, 1)]
    assert await shelf.get("disk", snapshot=moment) == b"x" * 4 * PAGE
    await shelf.require_sound()
    await shelf.write(delete_blob, DeleteBlob(NAME, snapshots=DeleteSnapshots.INCLUDE))
    await shelf.require_bare()


# Told


@on_a_shelf
async def test_ranges_in_parts(shelf: Shelf) -> None:
    await _begin(shelf, 20)
    for page in range(0, 20, 2):
        await _write(shelf, page, b"x" * PAGE)
    expected = [PageRange(page * PAGE, (page + 1) * PAGE) for page in range(0, 20, 2)]
    for limit in (1, 3, 10, 11):
        found: list[PageRange] = []
        following: int | None = 0
        while following is not None:
            told = await _told(shelf, limit=limit, start=following)
            assert 0 < len(told.ranges) <= limit
            found += told.ranges
            following = told.following
        assert found == expected


@on_a_shelf
async def test_ranges_of_a_range(shelf: Shelf) -> None:
    await _begin(shelf, 8)
    await _write(shelf, 1, b"x" * 5 * PAGE)
    for first, last, pages in (
        (0, None, [(1, 6)]),
        (0, PAGE - 1, []),
        (0, PAGE, [(1, 2)]),
        (2 * PAGE, 4 * PAGE - 1, [(2, 4)]),
        (2 * PAGE + 1, 4 * PAGE, [(2, 5)]),
        (5 * PAGE, 10**18, [(5, 6)]),
        (6 * PAGE, None, []),
    ):
        assert await _ranges(shelf, first=first, last=last) == pages, (first, last)
    assert await code_of(_told(shelf, first=8 * PAGE)) == "InvalidRange"


@on_a_shelf
async def test_what_has_no_ranges(shelf: Shelf) -> None:
    await _begin(shelf, 0)
    assert await _ranges(shelf) == []
    await shelf.put("block blob", b"data")
    for name, code in ((BlobName(BOX, "block blob"), "InvalidBlobType"), (MISSING, "BlobNotFound")):
        ask = GetPageRanges(GetBlob(name), 10)
        assert await code_of(shelf.read(get_page_ranges, ask)) == code


# Compared


@on_a_shelf
async def test_what_was_changed_since_a_snapshot(shelf: Shelf) -> None:
    await _begin(shelf, 8)
    await _write(shelf, 0, b"a" * 4 * PAGE)
    first = await shelf.snapshot("disk")
    assert await _ranges(shelf, previous=first) == []
    await _write(shelf, 1, b"b" * PAGE)
    await _clear(shelf, 3, 4)
    second = await shelf.snapshot("disk")
    await _write(shelf, 6, b"c" * PAGE)
    assert await _ranges(shelf, previous=first) == [(1, 2), (3, 4, "cleared"), (6, 7)]
    assert await _ranges(shelf, second, previous=first) == [(1, 2), (3, 4, "cleared")]
    assert await _ranges(shelf, previous=second) == [(6, 7)]
    assert await _ranges(shelf, previous=first, first=2 * PAGE, last=4 * PAGE - 1) == [
        (3, 4, "cleared")
    ]
    told = await _told(shelf, previous=first, limit=1)
    assert (len(told.ranges), told.following) == (1, 3 * PAGE)
    # What was written and cleared since counts, though nothing is to be seen of it.
    await _write(shelf, 7, b"d" * PAGE)
    await _clear(shelf, 7, 8)
    assert await _ranges(shelf, previous=second) == [(6, 7), (7, 8, "cleared")]
    newer = _told(shelf, first, previous=second)
    assert await code_of(newer) == "PreviousSnapshotCannotBeNewer"
    assert await code_of(_told(shelf, previous=first + 1)) == "PreviousSnapshotNotFound"
    await _put(shelf, 8 * PAGE)
    assert await code_of(_told(shelf, previous=second)) == "BlobOverwritten"
    assert await _ranges(shelf, second, previous=first) == [(1, 2), (3, 4, "cleared")]
    await shelf.require_sound()


@on_a_shelf
async def test_any_history_is_told_rightly(shelf: Shelf) -> None:
    """Against a list of pages, of which each knows when it was last changed."""
    await _begin(shelf, 16)
    source = random.Random(7)
    content = [0] * 16
    kept: dict[int, list[int]] = {}
    for _ in range(60):
        first = source.randrange(16)
        behind = source.randrange(first, 16) + 1
        step = source.randrange(4)
        if step < 2:
            letter = source.randrange(1, 256)
            await _write(shelf, first, bytes([letter]) * (behind - first) * PAGE)
            content[first:behind] = [letter] * (behind - first)
        elif step == 2:
            await _clear(shelf, first, behind)
            content[first:behind] = [0] * (behind - first)
        elif len(kept) < 5:
            kept[await shelf.snapshot("disk")] = list(content)
        for moment, pages in (*kept.items(), (None, content)):
            data = await shelf.get("disk", snapshot=moment)
            assert data == b"".join(bytes([page]) * PAGE for page in pages)
            written = {
                page for start, end in await _ranges(shelf, moment) for page in range(start, end)
            }
            assert written == {number for number, page in enumerate(pages) if page}
    for moment, pages in kept.items():
        changed = {
            page for told in await _ranges(shelf, previous=moment) for page in range(*told[:2])
        }
        assert changed >= {number for number in range(16) if pages[number] != content[number]}
    await shelf.require_sound()
    await shelf.write(delete_blob, DeleteBlob(NAME, snapshots=DeleteSnapshots.INCLUDE))
    await shelf.require_bare()
