"""Blobs over every engine: who wins, who is refused, what is read."""

from __future__ import annotations

import asyncio

import pytest

from etagere.bodies.contents import EXTENTS, INLINE
from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import ReadTxn, Refused
from etagere.model.blobs import (
    BlobHeaders,
    BlobName,
    DeleteBlob,
    GetBlob,
    PutBlob,
    SetBlobHeaders,
    SetBlobMetadata,
)
from etagere.model.bodies import Body
from etagere.model.conditions import ANY, Conditions
from etagere.operations.blob.blobs import (
    delete_blob,
    get_blob,
    precheck_put,
    set_blob_headers,
    set_blob_metadata,
)
from etagere.rules.conditions import NotModified, format_etag
from tests.operations.blob.shelf import BOX, Shelf, code_of, on_a_shelf

LARGE = 200_000
NAME = BlobName(BOX, "blob")


def _bodies(txn: ReadTxn, _command: None) -> int:
    inline = txn.scan(INLINE, INLINE.all(), 1000)
    return len(inline) + len(txn.scan(EXTENTS, EXTENTS.all(), 1000))


@on_a_shelf
async def test_put_and_get(shelf: Shelf) -> None:
    assert await code_of(shelf.put("blob")) == "ContainerNotFound"
    await shelf.create()
    assert await code_of(shelf.get("blob")) == "BlobNotFound"
    for data in (b"", b"small", bytes(range(256)) * (LARGE // 256)):
        put = await shelf.put("blob", data)
        shown = await shelf.read(get_blob, GetBlob(NAME))
        assert shown.blob == put
        assert shown.blob.content.length == len(data)
        assert await shelf.get("blob") == data
        if data:
            assert await shelf.get("blob", 2, 1000) == data[2:1001]
            assert await shelf.get("blob", 1) == data[1:]
        assert await code_of(shelf.get("blob", len(data), 1000)) == "InvalidRange"
    assert await shelf.read(_bodies, None) == 1


@on_a_shelf
async def test_of_many_with_one_etag_one_wins(shelf: Shelf) -> None:
    await shelf.create()
    for round_ in range(10):
        before = await shelf.put("blob", b"before")
        seen = Conditions(if_match=(format_etag(before.stamp),))
        datas = [f"{round_} {racer}".encode() * (3000 * (racer % 2) + 1) for racer in range(8)]
        codes = await asyncio.gather(*(code_of(shelf.put("blob", data, seen)) for data in datas))
        assert sorted(codes) == [""] + ["ConditionNotMet"] * 7
        assert await shelf.get("blob") == datas[codes.index("")]


@on_a_shelf
async def test_created_once(shelf: Shelf) -> None:
    await shelf.create()
    new = Conditions(if_none_match=ANY)
    codes = await asyncio.gather(*(code_of(shelf.put("blob", b"x", new)) for _ in range(8)))
    assert sorted(codes) == [""] + ["BlobAlreadyExists"] * 7
    absent = Conditions(if_match=ANY)
    assert await code_of(shelf.put("other", b"x", absent)) == "ConditionNotMet"
    refused = code_of(shelf.put("blob", b"y", only_if_absent=True))
    assert await refused == "UnauthorizedBlobOverwrite"
    assert await shelf.get("blob") == b"x"
    await shelf.put("third", b"z", only_if_absent=True)


@on_a_shelf
async def test_what_is_refused_leaves_nothing(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("blob", b"a" * LARGE)
    stale = Conditions(if_match=('"0x1"',))
    assert await code_of(shelf.put("blob", b"b" * LARGE, stale)) == "ConditionNotMet"
    assert await code_of(shelf.put("blob", b"c", stale)) == "ConditionNotMet"
    assert await shelf.get("blob") == b"a" * LARGE
    assert await shelf.read(_bodies, None) == 1


@on_a_shelf
async def test_headers_and_metadata(shelf: Shelf) -> None:
    await shelf.create()
    put = await shelf.put("blob", b"x")
    described = BlobHeaders("text/plain", cache_control="no-store")
    changed = await shelf.write(set_blob_headers, SetBlobHeaders(NAME, described))
    assert changed.stamp > put.stamp
    assert changed.created == put.created
    noted = await shelf.write(set_blob_metadata, SetBlobMetadata(NAME, (("Key", "value"),)))
    assert noted.stamp > changed.stamp
    assert noted.headers == described
    assert (await shelf.read(get_blob, GetBlob(NAME))).blob == noted
    stale = Conditions(if_match=(format_etag(put.stamp),))
    for call in (
        shelf.write(set_blob_headers, SetBlobHeaders(NAME, described, stale)),
        shelf.write(set_blob_metadata, SetBlobMetadata(NAME, (), stale)),
        shelf.write(delete_blob, DeleteBlob(NAME, stale)),
    ):
        assert await code_of(call) == "ConditionNotMet"
    replaced = await shelf.put("blob", b"y")
    assert replaced.metadata == ()
    assert replaced.created == put.created


@on_a_shelf
async def test_a_read_that_has_nothing_new_to_show(shelf: Shelf) -> None:
    await shelf.create()
    put = await shelf.put("blob", b"x")
    known = Conditions(if_none_match=(format_etag(put.stamp),))
    with pytest.raises(Refused) as caught:
        await shelf.read(get_blob, GetBlob(NAME, known))
    assert isinstance(caught.value.refusal, NotModified)
    missing = GetBlob(BlobName(BOX, "missing"), Conditions(if_match=('"0x1"',)))
    assert await code_of(shelf.read(get_blob, missing)) == "BlobNotFound"


@on_a_shelf
async def test_deleted(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put("blob", b"x" * LARGE)
    await shelf.write(delete_blob, DeleteBlob(NAME))
    assert await code_of(shelf.get("blob")) == "BlobNotFound"
    assert await code_of(shelf.write(delete_blob, DeleteBlob(NAME))) == "BlobNotFound"
    assert await shelf.read(_bodies, None) == 0


@on_a_shelf
async def test_stamps_are_never_shared(shelf: Shelf) -> None:
    await shelf.create()
    shelf.clock.freeze()
    puts = await asyncio.gather(*(shelf.put(f"blob {number % 3}", b"x") for number in range(30)))
    shelf.clock.wall_offset -= 3600 * TICKS_PER_SECOND
    puts += await asyncio.gather(*(shelf.put("blob 0", b"x") for _ in range(5)))
    assert len({blob.stamp for blob in puts}) == 35


@on_a_shelf
async def test_the_precheck_refuses_what_would_be_refused(shelf: Shelf) -> None:
    """Before an upload nothing is changed, and nothing is refused that would succeed."""
    await shelf.create()
    put = await shelf.put("blob", b"x")
    stale, current = '"0x1"', format_etag(put.stamp)
    for etag, code in ((stale, "ConditionNotMet"), (current, "")):
        ask = PutBlob(NAME, Body(b"", 0, 0), conditions=Conditions(if_match=(etag,)))
        assert await code_of(shelf.read(precheck_put, ask)) == code
    assert await shelf.get("blob") == b"x"
