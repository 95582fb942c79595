"""Blobs with every engine: races, refusals and reads."""

from __future__ import annotations

import asyncio

import pytest

from etagere.bodies.contents import EXTENTS, INLINE
from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import ReadTxn, Refused
from etagere.model.blobs import (
    BlobName,
    DeleteBlob,
    GetBlob,
    PutBlob,
    SetBlobHeaders,
    SetBlobMetadata,
)
from etagere.model.bodies import Body
from etagere.model.common import ContentHeaders
from etagere.model.conditions import ANY, Conditions
from etagere.operations.blob.blobs import (
    delete_blob,
    get_blob,
    precheck_put,
    set_blob_headers,
    set_blob_metadata,
)
from etagere.rules.conditions import NotModified, format_etag
from tests.operations.blob.fixture import BOX, BlobFixture, blob_test
from tests.operations.fixture import code_of

LARGE = 200_000
NAME = BlobName(BOX, "blob")


def _bodies(txn: ReadTxn, _command: None) -> int:
    inline = txn.scan(INLINE, INLINE.all(), 1000)
    return len(inline) + len(txn.scan(EXTENTS, EXTENTS.all(), 1000))


@blob_test
async def test_put_and_get(blobs: BlobFixture) -> None:
    assert await code_of(blobs.put("blob")) == "ContainerNotFound"
    await blobs.create()
    assert await code_of(blobs.get("blob")) == "BlobNotFound"
    for data in (b"", b"small", bytes(range(256)) * (LARGE // 256)):
        put = await blobs.put("blob", data)
        shown = await blobs.read(get_blob, GetBlob(NAME))
        assert shown.blob == put
        assert shown.blob.content.length == len(data)
        assert await blobs.get("blob") == data
        if data:
            assert await blobs.get("blob", 2, 1000) == data[2:1001]
            assert await blobs.get("blob", 1) == data[1:]
        assert await code_of(blobs.get("blob", len(data), 1000)) == "InvalidRange"
    assert await blobs.read(_bodies, None) == 1


@blob_test
async def test_one_of_many_writers_with_the_same_etag_wins(blobs: BlobFixture) -> None:
    await blobs.create()
    for round_ in range(10):
        before = await blobs.put("blob", b"before")
        seen = Conditions(if_match=(format_etag(before.stamp),))
        datas = [f"{round_} {racer}".encode() * (3000 * (racer % 2) + 1) for racer in range(8)]
        codes = await asyncio.gather(*(code_of(blobs.put("blob", data, seen)) for data in datas))
        assert sorted(codes) == [""] + ["ConditionNotMet"] * 7
        assert await blobs.get("blob") == datas[codes.index("")]


@blob_test
async def test_one_of_many_creators_wins(blobs: BlobFixture) -> None:
    await blobs.create()
    new = Conditions(if_none_match=ANY)
    codes = await asyncio.gather(*(code_of(blobs.put("blob", b"x", new)) for _ in range(8)))
    assert sorted(codes) == [""] + ["BlobAlreadyExists"] * 7
    absent = Conditions(if_match=ANY)
    assert await code_of(blobs.put("other", b"x", absent)) == "ConditionNotMet"
    refused = code_of(blobs.put("blob", b"y", only_if_absent=True))
    assert await refused == "UnauthorizedBlobOverwrite"
    assert await blobs.get("blob") == b"x"
    await blobs.put("third", b"z", only_if_absent=True)


@blob_test
async def test_refused_uploads_leave_nothing_behind(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("blob", b"a" * LARGE)
    stale = Conditions(if_match=('"0x1"',))
    assert await code_of(blobs.put("blob", b"b" * LARGE, stale)) == "ConditionNotMet"
    assert await code_of(blobs.put("blob", b"c", stale)) == "ConditionNotMet"
    assert await blobs.get("blob") == b"a" * LARGE
    assert await blobs.read(_bodies, None) == 1


@blob_test
async def test_headers_and_metadata(blobs: BlobFixture) -> None:
    await blobs.create()
    put = await blobs.put("blob", b"x")
    described = ContentHeaders("text/plain", cache_control="no-store")
    changed = await blobs.write(set_blob_headers, SetBlobHeaders(NAME, described))
    assert changed.stamp > put.stamp
    assert changed.created == put.created
    noted = await blobs.write(set_blob_metadata, SetBlobMetadata(NAME, (("Key", "value"),)))
    assert noted.stamp > changed.stamp
    assert noted.headers == described
    assert (await blobs.read(get_blob, GetBlob(NAME))).blob == noted
    stale = Conditions(if_match=(format_etag(put.stamp),))
    for call in (
        blobs.write(set_blob_headers, SetBlobHeaders(NAME, described, stale)),
        blobs.write(set_blob_metadata, SetBlobMetadata(NAME, (), stale)),
        blobs.write(delete_blob, DeleteBlob(NAME, stale)),
    ):
        assert await code_of(call) == "ConditionNotMet"
    replaced = await blobs.put("blob", b"y")
    assert replaced.metadata == ()
    assert replaced.created == put.created


@blob_test
async def test_not_modified_reads(blobs: BlobFixture) -> None:
    await blobs.create()
    put = await blobs.put("blob", b"x")
    known = Conditions(if_none_match=(format_etag(put.stamp),))
    with pytest.raises(Refused) as caught:
        await blobs.read(get_blob, GetBlob(NAME, known))
    assert isinstance(caught.value.refusal, NotModified)
    missing = GetBlob(BlobName(BOX, "missing"), Conditions(if_match=('"0x1"',)))
    assert await code_of(blobs.read(get_blob, missing)) == "BlobNotFound"


@blob_test
async def test_delete(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.put("blob", b"x" * LARGE)
    await blobs.write(delete_blob, DeleteBlob(NAME))
    assert await code_of(blobs.get("blob")) == "BlobNotFound"
    assert await code_of(blobs.write(delete_blob, DeleteBlob(NAME))) == "BlobNotFound"
    assert await blobs.read(_bodies, None) == 0


@blob_test
async def test_stamps_are_unique(blobs: BlobFixture) -> None:
    await blobs.create()
    blobs.clock.freeze()
    puts = await asyncio.gather(*(blobs.put(f"blob {number % 3}", b"x") for number in range(30)))
    blobs.clock.wall_offset -= 3600 * TICKS_PER_SECOND
    puts += await asyncio.gather(*(blobs.put("blob 0", b"x") for _ in range(5)))
    assert len({blob.stamp for blob in puts}) == 35


@blob_test
async def test_the_precheck_refuses_what_would_be_refused(blobs: BlobFixture) -> None:
    """The check before an upload changes nothing and refuses nothing that would succeed."""
    await blobs.create()
    put = await blobs.put("blob", b"x")
    stale, current = '"0x1"', format_etag(put.stamp)
    for etag, code in ((stale, "ConditionNotMet"), (current, "")):
        ask = PutBlob(NAME, Body(b"", 0, 0), conditions=Conditions(if_match=(etag,)))
        assert await code_of(blobs.read(precheck_put, ask)) == code
    assert await blobs.get("blob") == b"x"
