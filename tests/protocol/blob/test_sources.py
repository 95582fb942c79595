"""Copy sources: parsing of addresses, timeouts of other servers, and shared bytes."""

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
from etagere.operations import sources
from etagere.operations.blob.blobs import delete_blob, get_blob, put_blob
from etagere.operations.blob.sharing import (
    append_shared_block,
    are_page_aligned,
    put_blob_from_blob,
)
from etagere.operations.blob.snapshots import delete_snapshot
from etagere.operations.sources import PIECES_GONE, find_pieces
from etagere.protocol.http.ranges import Range
from etagere.protocol.rest.refusals import UnreadSource, unread_source
from etagere.protocol.sources import fetching
from etagere.protocol.sources.addresses import SourceAddress, is_allowed, parse, service_here
from etagere.protocol.sources.fetching import Fetcher
from etagere.settings.values import CopySource, parse_copy_source
from tests.engine.conftest import start
from tests.operations.blob.fixture import BOX, BlobFixture, blob_property_test, blob_test, latest
from tests.operations.fixture import code_of

__all__ = ["start"]

OURS = "127.0.0.1:10000"
PORTS = {"blob": 10_000, "queue": 10_001, "table": 10_002, "file": 10_003}
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
        ("http://a/" + "b" * 33_000, None),
    ],
)
def test_addresses(written: str, expected: SourceAddress | None) -> None:
    assert parse(written) == expected


@given(st.text())
def test_parsing_of_arbitrary_text(text: str) -> None:
    for written in (text, f"http://{text}", f"http://a/{text}"):
        address = parse(written)
        if address is not None:
            plain = address._replace(query="")
            assert parse(plain.without_secrets()) == plain


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
    address = parse(f"http://a.b:8080/c/d?{query}")
    assert address is not None
    assert address.without_secrets() == f"http://a.b:8080/c/d{shown}"


@pytest.mark.parametrize(
    ("source", "host", "expected"),
    [
        (f"http://{OURS}/", OURS, "blob"),
        ("http://localhost:10000/", OURS, "blob"),
        ("http://[::1]:10000/", OURS, "blob"),
        ("http://account.blob.localhost:10000/", OURS, "blob"),
        ("http://localhost:10001/", OURS, None),
        ("http://localhost:10003/", OURS, "file"),
        ("http://account.file.localhost:10003/", OURS, "file"),
        ("http://account.file.localhost:10000/", OURS, "blob"),
        ("http://localhost:10001/", "127.0.0.1:10003", None),
        ("http://localhost/", OURS, None),
        ("http://account.queue.localhost:10000/", OURS, None),
        ("http://storage.example:8080/a", "storage.example:8080", "blob"),
        ("http://storage.example/a", "Storage.Example", "blob"),
        ("http://one.blob.storage.example/", "two.blob.storage.example", "blob"),
        ("http://storage.example:8080/a", "storage.example", None),
        ("http://one.file.storage.example/", "two.blob.storage.example", "file"),
        ("http://one.file.storage.example:10000/", "two.blob.storage.example:10000", "file"),
        ("http://storage.example:10003/", "storage.example:10000", "file"),
        ("http://other.example:10003/", "storage.example:10000", None),
        ("http://storage.example./a", "storage.example", "blob"),
        ("http://storage.example/a", "storage.example.", "blob"),
        ("http://account.blob.localhost.:10000/", OURS, "blob"),
        ("http://storage.example../a", "storage.example", None),
        ("http://127.1:10000/", OURS, None),
        ("http://x/", "", None),
        ("http://x/", "x:y", None),
        ("http://x/", "y@x", None),
    ],
)
def test_services_of_this_server(source: str, host: str, expected: str | None) -> None:
    address = parse(source)
    assert address is not None
    assert service_here(address, host, "http", "blob", PORTS) == expected


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
def test_allowed_sources(source: str, allowed: bool) -> None:
    named = [parse_copy_source(text) for text in ("Example.com", "10.0.0.1:8080", "[::1]:81")]
    address = parse(source)
    assert address is not None
    assert is_allowed(address, named) is allowed
    assert not is_allowed(address, ())


@pytest.mark.parametrize(
    "text", ["", "http://a", "a/b", "a:0", "a:65536", "a:b", "*", "*.a", "a b", "u@a", "[a]:1:2"]
)
def test_invalid_settings(text: str) -> None:
    with pytest.raises(ValueError, match="must be HOST or HOST:PORT"):
        parse_copy_source(text)
    assert parse_copy_source(" a:1 ") == CopySource("a", 1)


def test_only_client_errors_of_a_source_are_repeated() -> None:
    for received, expected in (
        (404, 404),
        (304, 304),
        (302, 400),
        (418, 400),
        (503, 500),
        (200, 500),
    ):
        refusal = unread_source(received, "Code", "Message.").refusal
        assert isinstance(refusal, UnreadSource)
        assert refusal.status == expected


# Slow sources


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def _source(serve: Serve) -> AsyncIterator[SourceAddress]:
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


async def _fetched(serve: Serve, seconds_max: float | None, range_: Range | None = None) -> str:
    """Returns the bytes that are fetched, or the code of the refusal."""
    fetcher = Fetcher()
    try:
        async with _source(serve) as address:
            source = await fetcher.fetch(address, {}, range_, 100, seconds_max)
            async with source:
                return b"".join([chunk async for chunk in source.chunks()]).decode()
    except Refused as refused:
        return refused.refusal.code
    finally:
        await fetcher.close()


async def _silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def _stalls_in_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
    await reader.read()


async def _sends_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n")
    for _ in range(90):
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def _endless_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nx: " + b"y" * (1 << 20))
    await reader.read()


async def _responds(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbytes")


async def _unrequested_range(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-4/9\r\nContent-Length: 5\r\n\r\n"
    writer.write(head + b"bytes")


def test_time_limits_of_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_SILENCE_SECONDS_MAX", 0.3)
    failed = "CannotVerifyCopySource"
    assert asyncio.run(_fetched(_responds, 10)) == "bytes"
    assert asyncio.run(_fetched(_silent, None)) == failed
    assert asyncio.run(_fetched(_stalls_in_body, None)) == failed
    assert asyncio.run(_fetched(_sends_slowly, 0.3)) == failed
    assert asyncio.run(_fetched(_endless_head, 10)) == failed


def test_an_unrequested_range_is_refused() -> None:
    failed = "CannotVerifyCopySource"
    assert asyncio.run(_fetched(_unrequested_range, 10)) == failed
    assert asyncio.run(_fetched(_unrequested_range, 10, Range(0, 4))) == "bytes"
    assert asyncio.run(_fetched(_unrequested_range, 10, Range(0, 3))) == "RequestBodyTooLarge"
    assert asyncio.run(_fetched(_unrequested_range, 10, Range(4, 8))) == failed
    assert asyncio.run(_fetched(_responds, 10, Range(0, 4))) == failed


async def _responds_with_metadata(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    metadata = b"x-ms-meta-Title: A\r\nX-Ms-Meta-camelCase: b\r\n"
    writer.write(b"HTTP/1.1 200 OK\r\n" + metadata + b"Content-Length: 0\r\n\r\n")


def test_metadata_names_keep_their_case() -> None:
    async def fetch() -> tuple[tuple[str, str], ...]:
        fetcher = Fetcher()
        try:
            async with (
                _source(_responds_with_metadata) as address,
                await fetcher.fetch(address, {}, None, None, 10) as source,
            ):
                return source.metadata
        finally:
            await fetcher.close()

    assert asyncio.run(fetch()) == (("Title", "A"), ("camelCase", "b"))


def test_a_source_that_refuses_connections() -> None:
    async def fetch() -> None:
        fetcher = Fetcher()
        async with _source(_responds) as address:
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
async def test_shared_bytes_outlive_their_source(blobs: BlobFixture) -> None:
    await blobs.create()
    name = BlobName(BOX, "source")
    for data in (b"", b"small", LARGE):
        source_blob = await blobs.put("source", data)
        copy = await blobs.write(
            put_blob_from_blob, _put("copy", SourceBlob(name, None, source_blob.stamp))
        )
        assert copy is not None
        assert copy.content == source_blob.content
        await blobs.put("source", b"other")
        assert await blobs.get("copy") == data
        await blobs.require_sound()
    await blobs.write(delete_blob, DeleteBlob(name))
    await blobs.write(delete_blob, DeleteBlob(BlobName(BOX, "copy")))
    await blobs.require_empty()


@blob_test
async def test_block_lists_are_shared(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.stage_all("source", {b"a": LARGE, b"b": b"b"})
    source_blob = await blobs.commit("source", latest(b"a", b"b"))
    source = SourceBlob(BlobName(BOX, "source"), None, source_blob.stamp)
    for _ in range(2):
        await blobs.write(put_blob_from_blob, _put("copy", source))
    await blobs.write(delete_blob, DeleteBlob(BlobName(BOX, "source")))
    assert await blobs.get("copy") == LARGE + b"b"
    await blobs.write(delete_blob, DeleteBlob(BlobName(BOX, "copy")))
    await blobs.require_empty()


@blob_test
async def test_a_changed_source_is_not_shared(blobs: BlobFixture) -> None:
    await blobs.create()
    name = BlobName(BOX, "source")
    source_blob = await blobs.put("source", LARGE)
    source = SourceBlob(name, None, source_blob.stamp)
    await blobs.stage("copy", b"waits", b"block")
    newer = await blobs.put("source", LARGE)
    assert await blobs.write(put_blob_from_blob, _put("copy", source)) is None
    await blobs.write(delete_blob, DeleteBlob(name))
    assert await blobs.write(put_blob_from_blob, _put("copy", source)) is None
    deleted = SourceBlob(name, None, newer.stamp)
    assert await blobs.write(put_blob_from_blob, _put("copy", deleted)) is None
    assert await blobs.staged("copy") == [b"waits"]
    await blobs.require_sound()


@blob_test
async def test_a_snapshot_is_shared_while_it_exists(blobs: BlobFixture) -> None:
    await blobs.create()
    name = BlobName(BOX, "source")
    source_blob = await blobs.put("source", LARGE)
    snapshot = await blobs.snapshot("source")
    await blobs.put("source", b"newer")
    source = SourceBlob(name, snapshot, source_blob.stamp)
    assert await blobs.write(put_blob_from_blob, _put("source", source)) is not None
    assert await blobs.get("source") == LARGE
    await blobs.write(delete_snapshot, DeleteSnapshot(name, snapshot))
    assert await blobs.write(put_blob_from_blob, _put("copy", source)) is None
    assert await blobs.get("source") == LARGE
    await blobs.require_sound()


@blob_test
async def test_a_copy_without_permission_to_overwrite(blobs: BlobFixture) -> None:
    await blobs.create()
    source_blob = await blobs.put("source", LARGE)
    existing = await blobs.put("copy", b"existing")
    source = SourceBlob(BlobName(BOX, "source"), None, source_blob.stamp)
    command = _put("copy", source)
    absent = PutBlob(command.put.blob, command.put.body, only_if_absent=True)
    call = blobs.write(put_blob_from_blob, PutBlobFromBlob(absent, source))
    assert await code_of(call) == "UnauthorizedBlobOverwrite"
    assert (await blobs.put("other")).stamp > existing.stamp
    assert await blobs.get("copy") == b"existing"
    await blobs.require_sound()


# Shared pieces


async def _append(
    blobs: BlobFixture, source: BlobName, stamp: int, start: int, length: int
) -> bool:
    """Appends a shared range to "copy"; returns whether it could be shared."""
    ask = FindPieces(SourceBlob(source, None, stamp), start, length)
    pieces = await blobs.read(find_pieces, ask)
    assert sum(piece.length for piece in pieces) in (0, length)
    if not pieces:
        return False
    body = Body(b"", length, 0, pieces=pieces)
    command = AppendBlock(BlobName(BOX, "copy"), body, new_id(), borrowed=True)
    await blobs.write(append_shared_block, command)
    return True


async def _make_append_blob(blobs: BlobFixture) -> None:
    command = PutBlob(
        BlobName(BOX, "copy"), Body(b"", 0, 0), kind=BlobKind.APPEND, content_id=new_id()
    )
    await blobs.write(put_blob, command)


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
    source_blob = await blobs.commit("source", latest(*blocks))
    await _make_append_blob(blobs)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sources, "_BYTES_MIN", 1)
        for _ in range(2):
            assert await _append(blobs, BlobName(BOX, "source"), source_blob.stamp, start, length)
    await blobs.write(delete_blob, DeleteBlob(BlobName(BOX, "source")))
    assert await blobs.get("copy") == data[start : start + length] * 2
    # Bytes in a map are shared too.
    copy = await blobs.read(get_blob, GetBlob(BlobName(BOX, "copy")))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sources, "_BYTES_MIN", 1)
        name, stamp = BlobName(BOX, "copy"), copy.blob.stamp
        assert await _append(blobs, name, stamp, length // 2, length)
    twice = data[start : start + length] * 2
    assert await blobs.get("copy") == twice + twice[length // 2 : length // 2 + length]
    await blobs.write(delete_blob, DeleteBlob(BlobName(BOX, "copy")))
    await blobs.require_empty()


@blob_test
async def test_missing_small_and_changed_sources_are_not_shared(blobs: BlobFixture) -> None:
    await blobs.create()
    await _make_append_blob(blobs)
    name, large = BlobName(BOX, "source"), bytes(2 << 20)
    source_blob = await blobs.put("source", large)
    assert not await _append(blobs, name, source_blob.stamp, 0, 1000)
    assert not await _append(blobs, name, source_blob.stamp + 1, 0, len(large))
    assert not await _append(blobs, BlobName(BOX, "absent"), source_blob.stamp, 0, len(large))
    assert not await _append(blobs, name, source_blob.stamp, 1, len(large))
    ask = FindPieces(SourceBlob(name, None, source_blob.stamp), 0, len(large))
    pieces = await blobs.read(find_pieces, ask)
    await blobs.write(delete_blob, DeleteBlob(name))
    body = Body(b"", len(large), 0, pieces=pieces)
    command = AppendBlock(BlobName(BOX, "copy"), body, new_id(), borrowed=True)
    assert await code_of(blobs.write(append_shared_block, command)) == PIECES_GONE
    assert await blobs.get("copy") == b""
    await blobs.require_sound()


def test_only_aligned_pages_are_shared() -> None:
    assert are_page_aligned((Piece(1, 0, 512), Piece(1, 512, 1024, skip=3)))
    assert not are_page_aligned((Piece(1, 0, 512), Piece(1, 512, 513)))
