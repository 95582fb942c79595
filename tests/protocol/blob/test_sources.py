"""Sources: which addresses name what, how long others may take, and whose bytes are shared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.engine.interface import Refused
from etagere.model.appends import AppendBlock
from etagere.model.blobs import BlobKind, BlobName, DeleteBlob, DeleteSnapshot, GetBlob, PutBlob
from etagere.model.bodies import Body, Piece
from etagere.model.ids import new_id
from etagere.model.sources import FindPieces, PutBlobFromBlob, SourceBlob
from etagere.operations.blob import sharing
from etagere.operations.blob.blobs import delete_blob, get_blob, put_blob
from etagere.operations.blob.sharing import (
    PIECES_GONE,
    append_shared_block,
    are_page_aligned,
    find_pieces,
    put_blob_from_blob,
)
from etagere.operations.blob.snapshots import delete_snapshot
from etagere.protocol.http.ranges import Range
from etagere.protocol.rest.refusals import UnreadSource, unread_source
from etagere.protocol.sources import fetching
from etagere.protocol.sources.addresses import SourceAddress, is_allowed, is_this_server, parse
from etagere.protocol.sources.fetching import Fetcher
from etagere.settings import CopySource, parse_copy_source
from tests.engine.conftest import start
from tests.operations.blob.fixture import BOX, BlobFixture, blob_property_test, blob_test, latest
from tests.operations.fixture import code_of

__all__ = ["start"]

OURS = "127.0.0.1:10000"
LARGE = bytes(range(256)) * 800


# Addresses


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("http://a", SourceAddress("http", "a", 80, "/", "")),
        ("https://A.b:1/C?D=E", SourceAddress("https", "a.b", 1, "/C", "D=E")),
        ("HTTP://[::1]:80/%20?", SourceAddress("http", "::1", 80, "/%20", "")),
        ("http://a/b?c?d", SourceAddress("http", "a", 80, "/b", "c?d")),
        ("http://a/ä@b:1/", SourceAddress("http", "a", 80, "/ä@b:1/", "")),
        ("http://a:65535", SourceAddress("http", "a", 65_535, "/", "")),
        ("http://a:65536", None),
        ("http://a:0", None),
        ("http://a:", None),
        ("http://a:+1", None),
        ("http://a:\uff11", None),
        ("http://ä", None),
        ("http://a/#", None),
        ("http://a/ b", None),
        ("http://a/\r\nb", None),
        ("http://a?b", SourceAddress("http", "a", 80, "/", "b")),
        ("http://a@b", None),
        ("http://a:1@b", None),
        ("http://a\\b", None),
        ("http:///a", None),
        ("http://", None),
        ("https:a", None),
        ("ftp://a", None),
        ("", None),
        ("http://a/" + "b" * 20_000, None),
    ],
)
def test_addresses(written: str, expected: SourceAddress | None) -> None:
    assert parse(written) == expected


@given(st.text())
def test_any_text_is_an_address_or_none(text: str) -> None:
    for written in (text, f"http://{text}", f"http://a/{text}"):
        found = parse(written)
        if found is not None:
            assert parse(found._replace(query="").without_secrets()) == found._replace(query="")


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ""),
        ("sv=1&sig=secret", ""),
        ("snapshot=2020&sig=secret", "?snapshot=2020"),
        ("SIG=secret&Snapshot=1&versionid=2", "?Snapshot=1&versionid=2"),
        ("token=secret", ""),
    ],
)
def test_addresses_are_shown_without_secrets(query: str, shown: str) -> None:
    found = parse(f"http://a.b:8080/c/d?{query}")
    assert found is not None
    assert found.without_secrets() == f"http://a.b:8080/c/d{shown}"


@pytest.mark.parametrize(
    ("source", "host", "here"),
    [
        (f"http://{OURS}/", OURS, True),
        ("http://localhost:10000/", OURS, True),
        ("http://[::1]:10000/", OURS, True),
        ("http://account.blob.localhost:10000/", OURS, True),
        ("http://localhost:10001/", OURS, False),
        ("http://localhost/", OURS, False),
        ("http://account.queue.localhost:10000/", OURS, False),
        ("http://storage.example:8080/a", "storage.example:8080", True),
        ("http://storage.example/a", "Storage.Example", True),
        ("http://one.blob.storage.example/", "two.blob.storage.example", True),
        ("http://storage.example:8080/a", "storage.example", False),
        ("http://storage.example./a", "storage.example", False),
        ("http://127.1:10000/", OURS, False),
        ("http://x/", "", False),
        ("http://x/", "x:y", False),
        ("http://x/", "y@x", False),
    ],
)
def test_what_is_here(source: str, host: str, here: bool) -> None:
    found = parse(source)
    assert found is not None
    assert is_this_server(found, host, "http", 10_000) is here


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        ("http://example.com/", True),
        ("https://EXAMPLE.com/", True),
        ("http://example.com:80/", True),
        ("https://example.com:80/", False),
        ("http://example.com:8080/", False),
        ("http://example.com./", False),
        ("http://www.example.com/", False),
        ("http://10.0.0.1:8080/", True),
        ("http://10.0.0.1/", False),
        ("http://10.0.1:8080/", False),
        ("http://[::1]:81/", True),
        ("http://[0:0:0:0:0:0:0:1]:81/", False),
    ],
)
def test_what_is_allowed(source: str, allowed: bool) -> None:
    named = [parse_copy_source(text) for text in ("Example.com", "10.0.0.1:8080", "[::1]:81")]
    found = parse(source)
    assert found is not None
    assert is_allowed(found, named) is allowed
    assert not is_allowed(found, ())


@pytest.mark.parametrize(
    "text", ["", "http://a", "a/b", "a:0", "a:65536", "a:b", "*", "*.a", "a b", "u@a", "[a]:1:2"]
)
def test_settings_that_name_no_host(text: str) -> None:
    with pytest.raises(ValueError, match="must be HOST or HOST:PORT"):
        parse_copy_source(text)
    assert parse_copy_source(" a:1 ") == CopySource("a", 1)


def test_the_status_of_a_source_is_repeated_only_if_it_blames_the_request() -> None:
    for told, expected in ((404, 404), (304, 304), (302, 400), (418, 400), (503, 500), (200, 500)):
        refusal = unread_source(told, "Code", "Said.").refusal
        assert isinstance(refusal, UnreadSource)
        assert refusal.status == expected


# Others that take their time


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def _other(serve: Serve) -> AsyncIterator[SourceAddress]:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(once, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        yield SourceAddress("http", "127.0.0.1", port, "/", "")
    finally:
        server.close()


async def _fetched(serve: Serve, seconds_max: float | None, asked: Range | None = None) -> str:
    """The bytes that are fetched, or the code of the refusal."""
    fetcher = Fetcher()
    try:
        async with _other(serve) as address:
            source = await fetcher.fetch(address, {}, asked, 100, seconds_max)
            async with source:
                return b"".join([chunk async for chunk in source.chunks()]).decode()
    except Refused as refused:
        return refused.refusal.code
    finally:
        await fetcher.close()


async def _silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def _stops(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
    await reader.read()


async def _drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n")
    for _ in range(90):
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def _endless_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nx: " + b"y" * (1 << 20))
    await reader.read()


async def _answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbytes")


async def _unasked_range(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-4/9\r\nContent-Length: 5\r\n\r\n"
    writer.write(head + b"bytes")


def test_nobody_is_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_SILENCE_SECONDS_MAX", 0.3)
    failed = "CannotVerifyCopySource"
    assert asyncio.run(_fetched(_answers, 10)) == "bytes"
    assert asyncio.run(_fetched(_silent, None)) == failed
    assert asyncio.run(_fetched(_stops, None)) == failed
    assert asyncio.run(_fetched(_drips, 0.3)) == failed
    assert asyncio.run(_fetched(_endless_head, 10)) == failed


def test_a_part_nobody_asked_for_is_not_taken_for_all() -> None:
    failed = "CannotVerifyCopySource"
    assert asyncio.run(_fetched(_unasked_range, 10)) == failed
    assert asyncio.run(_fetched(_unasked_range, 10, Range(0, 4))) == "bytes"
    assert asyncio.run(_fetched(_unasked_range, 10, Range(0, 3))) == "RequestBodyTooLarge"
    assert asyncio.run(_fetched(_unasked_range, 10, Range(4, 8))) == failed
    assert asyncio.run(_fetched(_answers, 10, Range(0, 4))) == failed


async def _described(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    metadata = b"x-ms-meta-Title: A\r\nX-Ms-Meta-camelCase: b\r\n"
    writer.write(b"HTTP/1.1 200 OK\r\n" + metadata + b"Content-Length: 0\r\n\r\n")


def test_names_of_metadata_keep_their_case() -> None:
    async def fetch() -> tuple[tuple[str, str], ...]:
        fetcher = Fetcher()
        try:
            async with (
                _other(_described) as address,
                await fetcher.fetch(address, {}, None, None, 10) as source,
            ):
                return source.metadata
        finally:
            await fetcher.close()

    assert asyncio.run(fetch()) == (("Title", "A"), ("camelCase", "b"))


def test_nobody_listens() -> None:
    async def fetch() -> None:
        fetcher = Fetcher()
        async with _other(_answers) as address:
            pass
        try:
            await fetcher.fetch(address, {}, None, None, 10)
        finally:
            await fetcher.close()

    with pytest.raises(Refused) as refused:
        asyncio.run(fetch())
    assert refused.value.refusal.code == "CannotVerifyCopySource"


# Shared bytes


def _put(name: str, source: SourceBlob) -> PutBlobFromBlob:
    return PutBlobFromBlob(PutBlob(BlobName(BOX, name), Body(b"", 0, 0)), source)


@blob_test
async def test_bytes_are_shared_and_outlive_their_source(blobs: BlobFixture) -> None:
    await blobs.create()
    name = BlobName(BOX, "source")
    for data in (b"", b"small", LARGE):
        found = await blobs.put("source", data)
        made = await blobs.write(
            put_blob_from_blob, _put("made", SourceBlob(name, None, found.stamp))
        )
        assert made is not None
        assert made.content == found.content
        await blobs.put("source", b"other")
        assert await blobs.get("made") == data
        await blobs.require_sound()
    await blobs.write(delete_blob, DeleteBlob(name))
    await blobs.write(delete_blob, DeleteBlob(BlobName(BOX, "made")))
    await blobs.require_empty()


@blob_test
async def test_lists_of_blocks_are_shared(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage_all("source", {b"a": LARGE, b"b": b"b"})
    found = await blobs.commit("source", latest(b"a", b"b"))
    source = SourceBlob(BlobName(BOX, "source"), None, found.stamp)
    for _ in range(2):
        await blobs.write(put_blob_from_blob, _put("made", source))
    await blobs.write(delete_blob, DeleteBlob(BlobName(BOX, "source")))
    assert await blobs.get("made") == LARGE + b"b"
    await blobs.write(delete_blob, DeleteBlob(BlobName(BOX, "made")))
    await blobs.require_empty()


@blob_test
async def test_a_source_that_changed_is_not_taken(blobs: BlobFixture) -> None:
    await blobs.create()
    name = BlobName(BOX, "source")
    found = await blobs.put("source", LARGE)
    source = SourceBlob(name, None, found.stamp)
    await blobs.stage("made", b"waits", b"block")
    newer = await blobs.put("source", LARGE)
    assert await blobs.write(put_blob_from_blob, _put("made", source)) is None
    await blobs.write(delete_blob, DeleteBlob(name))
    assert await blobs.write(put_blob_from_blob, _put("made", source)) is None
    gone = SourceBlob(name, None, newer.stamp)
    assert await blobs.write(put_blob_from_blob, _put("made", gone)) is None
    assert await blobs.staged("made") == [b"waits"]
    await blobs.require_sound()


@blob_test
async def test_a_snapshot_is_taken_while_it_is_there(blobs: BlobFixture) -> None:
    await blobs.create()
    name = BlobName(BOX, "source")
    found = await blobs.put("source", LARGE)
    taken = await blobs.snapshot("source")
    await blobs.put("source", b"newer")
    source = SourceBlob(name, taken, found.stamp)
    assert await blobs.write(put_blob_from_blob, _put("source", source)) is not None
    assert await blobs.get("source") == LARGE
    await blobs.write(delete_snapshot, DeleteSnapshot(name, taken))
    assert await blobs.write(put_blob_from_blob, _put("made", source)) is None
    assert await blobs.get("source") == LARGE
    await blobs.require_sound()


@blob_test
async def test_what_may_not_be_replaced_is_not(blobs: BlobFixture) -> None:
    await blobs.create()
    found = await blobs.put("source", LARGE)
    there = await blobs.put("made", b"there")
    source = SourceBlob(BlobName(BOX, "source"), None, found.stamp)
    command = _put("made", source)
    absent = PutBlob(command.put.blob, command.put.body, only_if_absent=True)
    call = blobs.write(put_blob_from_blob, PutBlobFromBlob(absent, source))
    assert await code_of(call) == "UnauthorizedBlobOverwrite"
    assert (await blobs.put("other")).stamp > there.stamp
    assert await blobs.get("made") == b"there"
    await blobs.require_sound()


# Shared pieces


async def _append(
    blobs: BlobFixture, source: BlobName, stamp: int, start: int, length: int
) -> bool:
    """Whether a range could be shared; it is appended to "made"."""
    ask = FindPieces(SourceBlob(source, None, stamp), start, length)
    pieces = await blobs.read(find_pieces, ask)
    assert sum(piece.length for piece in pieces) in (0, length)
    if not pieces:
        return False
    body = Body(b"", length, 0, pieces=pieces)
    command = AppendBlock(BlobName(BOX, "made"), body, new_id(), borrowed=True)
    await blobs.write(append_shared_block, command)
    return True


async def _make_append_blob(blobs: BlobFixture) -> None:
    made = PutBlob(
        BlobName(BOX, "made"), Body(b"", 0, 0), kind=BlobKind.APPEND, content_id=new_id()
    )
    await blobs.write(put_blob, made)


@blob_property_test(
    st.lists(st.integers(1, 40_000), min_size=1, max_size=5).flatmap(
        lambda lengths: st.tuples(
            st.just(lengths), st.integers(0, sum(lengths) - 1), st.integers(1, 100_000)
        )
    ),
    count=15,
)
async def test_any_range_of_blocks_is_shared(
    blobs: BlobFixture, example: tuple[list[int], int, int]
) -> None:
    lengths, start, length = example
    await code_of(blobs.create())  # by the first example
    blocks = {bytes([n]): bytes([n + 1]) * count for n, count in enumerate(lengths)}
    data = b"".join(blocks.values())
    length = min(length, len(data) - start)
    await blobs.stage_all("source", blocks)
    found = await blobs.commit("source", latest(*blocks))
    await _make_append_blob(blobs)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sharing, "_BYTES_MIN", 1)
        for _ in range(2):
            assert await _append(blobs, BlobName(BOX, "source"), found.stamp, start, length)
    await blobs.write(delete_blob, DeleteBlob(BlobName(BOX, "source")))
    assert await blobs.get("made") == data[start : start + length] * 2
    # What lies in a map is shared too.
    made = await blobs.read(get_blob, GetBlob(BlobName(BOX, "made")))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sharing, "_BYTES_MIN", 1)
        name, stamp = BlobName(BOX, "made"), made.blob.stamp
        assert await _append(blobs, name, stamp, length // 2, length)
    twice = data[start : start + length] * 2
    assert await blobs.get("made") == twice + twice[length // 2 : length // 2 + length]
    await blobs.write(delete_blob, DeleteBlob(BlobName(BOX, "made")))
    await blobs.require_empty()


@blob_test
async def test_what_is_gone_small_or_changed_is_not_shared(blobs: BlobFixture) -> None:
    await blobs.create()
    await _make_append_blob(blobs)
    name, large = BlobName(BOX, "source"), bytes(2 << 20)
    found = await blobs.put("source", large)
    assert not await _append(blobs, name, found.stamp, 0, 1000)
    assert not await _append(blobs, name, found.stamp + 1, 0, len(large))
    assert not await _append(blobs, BlobName(BOX, "absent"), found.stamp, 0, len(large))
    assert not await _append(blobs, name, found.stamp, 1, len(large))
    ask = FindPieces(SourceBlob(name, None, found.stamp), 0, len(large))
    pieces = await blobs.read(find_pieces, ask)
    await blobs.write(delete_blob, DeleteBlob(name))
    body = Body(b"", len(large), 0, pieces=pieces)
    command = AppendBlock(BlobName(BOX, "made"), body, new_id(), borrowed=True)
    assert await code_of(blobs.write(append_shared_block, command)) == PIECES_GONE
    assert await blobs.get("made") == b""
    await blobs.require_sound()


def test_pages_are_shared_where_pages_end() -> None:
    assert are_page_aligned((Piece(1, 0, 512), Piece(1, 512, 1024, skip=3)))
    assert not are_page_aligned((Piece(1, 0, 512), Piece(1, 512, 513)))
