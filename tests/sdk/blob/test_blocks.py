"""Blocks: staging, committing and listing."""

from __future__ import annotations

import asyncio
import base64
import enum
import hashlib
import http.client
import random
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit

import pytest
from awscrt.checksums import crc64nvme
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import (
    BlobBlock,
    BlobClient,
    BlockState,
    ContainerClient,
    ContentSettings,
    StandardBlobTier,
    generate_blob_sas,
)

from tests.sdk.blob.clients import async_blob_service, blob_service
from tests.sdk.harness import ResponseRecorder, refused, with_headers
from tests.server import ACCOUNT, KEY, Server, check, served, unique

KIB, MIB = 1024, 1024 * 1024
HOUR = timedelta(hours=1)
OTHER_ETAG = '"0x8D0000000000001"'


class Source(enum.Enum):
    """Where a list looks for a block, in the spelling that the SDK compares with: its own
    `BlockState` values are capitalised, so that it treats them all as latest."""

    LATEST = "latest"
    COMMITTED = "committed"
    UNCOMMITTED = "uncommitted"


LATEST, COMMITTED, UNCOMMITTED = Source.LATEST, Source.COMMITTED, Source.UNCOMMITTED


@pytest.fixture
def blob(container: ContainerClient) -> BlobClient:
    """A blob that does not exist yet."""
    return container.get_blob_client("blob")


def stage(blob: BlobClient, **contents: bytes) -> None:
    for name, content in contents.items():
        blob.stage_block(name, content)


def commit(blob: BlobClient, *names: str, **options: Any) -> str:
    """Commits the latest blocks of these names; returns the ETag."""
    return str(blob.commit_block_list([BlobBlock(name) for name in names], **options)["etag"])


def shown(blob: BlobClient, kind: str = "all") -> tuple[list[str], list[str]]:
    """Returns the names of the committed and the uncommitted blocks."""
    committed, uncommitted = blob.get_block_list(kind)
    return [block.id for block in committed], [block.id for block in uncommitted]


def md5_text(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


def with_block_id(written: str) -> Callable[[Any], None]:
    """Returns a hook that replaces the block ID that the SDK has encoded."""

    def change(request: Any) -> None:
        url = request.http_request.url
        request.http_request.url = re.sub(r"blockid=[^&]*", f"blockid={quote(written, '')}", url)

    return change


# Committing


def test_blocks_become_a_blob_in_the_order_of_the_list(blob: BlobClient) -> None:
    stage(blob, a=b"one ", b=b"two ", c=b"three ")
    answer = ResponseRecorder()
    etag = commit(blob, "c", "a", "b", "a", raw_response_hook=answer)
    assert answer.status == 201
    assert answer.headers["x-ms-request-server-encrypted"] == "true"
    assert blob.download_blob().readall() == b"three one two one "
    assert blob.get_blob_properties().etag == etag
    assert shown(blob) == (["c", "a", "b", "a"], [])


def test_staging_does_not_change_the_blob(blob: BlobClient) -> None:
    blob.upload_blob(b"content", metadata={"a": "b"})
    before = blob.get_blob_properties()
    answer = ResponseRecorder()
    blob.stage_block("a", b"new", raw_response_hook=answer)
    assert answer.status == 201
    assert "etag" not in answer.headers
    after = blob.get_blob_properties()
    assert (after.etag, after.last_modified) == (before.etag, before.last_modified)
    assert blob.download_blob().readall() == b"content"


def test_the_last_block_of_a_name_wins(blob: BlobClient) -> None:
    stage(blob, a=b"first", b=b"!")
    stage(blob, a=b"second")
    commit(blob, "a", "b")
    assert blob.download_blob().readall() == b"second!"


SOURCES: list[tuple[str, Source, bytes | None]] = [
    ("o", COMMITTED, b"old"),
    ("o", UNCOMMITTED, None),
    ("o", LATEST, b"old"),
    ("n", COMMITTED, None),
    ("n", UNCOMMITTED, b"new"),
    ("n", LATEST, b"new"),
    ("x", COMMITTED, b"before"),
    ("x", UNCOMMITTED, b"after"),
    ("x", LATEST, b"after"),
]
"""The block `o` is in the blob, `n` is staged, `x` is both."""


@pytest.mark.parametrize(("name", "source", "expected"), SOURCES)
def test_sources_of_a_list(
    blob: BlobClient, name: str, source: Source, expected: bytes | None
) -> None:
    listed = [BlobBlock(name, cast(BlockState, source))]
    stage(blob, o=b"old", x=b"before")
    etag = commit(blob, "o", "x")
    stage(blob, n=b"new", x=b"after")
    if expected is None:
        with refused(400, "InvalidBlockList") as error:
            blob.commit_block_list(listed)
        assert base64.b64decode(error.details["blockid"]) == name.encode()
        assert error.details["lookedfor"].lower() == source.value
        assert blob.get_blob_properties().etag == etag
        assert shown(blob) == (["o", "x"], ["n", "x"])
    else:
        blob.commit_block_list(listed)
        assert blob.download_blob().readall() == expected
        assert shown(blob) == ([name], [])


def test_an_unknown_block_changes_nothing(blob: BlobClient) -> None:
    stage(blob, a=b"content")
    commit(blob, "a", metadata={"old": "yes"})
    before = blob.get_blob_properties()
    stage(blob, b=b"new")
    with refused(400, "InvalidBlockList"):
        commit(blob, "a", "b", "?", metadata={"old": "no"})
    after = blob.get_blob_properties()
    assert (after.etag, after.metadata) == (before.etag, {"old": "yes"})
    assert blob.download_blob().readall() == b"content"
    assert shown(blob) == (["a"], ["b"])
    commit(blob, "a", "b")


def test_editing_a_blob_by_its_list(blob: BlobClient) -> None:
    stage(blob, a=b"Once ", b=b"upon ", c=b"a ", d=b"time")
    commit(blob, "a", "b", "c", "d")
    stage(blob, c=b"another ", e=b"bright ")
    commit(blob, "b", "c", "e", "d")
    assert blob.download_blob().readall() == b"upon another bright time"
    with refused(400, "InvalidBlockList"):
        commit(blob, "a")


def test_an_empty_list_makes_an_empty_blob(blob: BlobClient) -> None:
    stage(blob, a=b"dropped")
    commit(blob)
    assert blob.get_blob_properties().size == 0
    assert blob.download_blob().readall() == b""
    assert shown(blob) == ([], [])


@pytest.mark.parametrize("end", ["list", "blob", "deletion"])
def test_operations_that_drop_staged_blocks(blob: BlobClient, end: str) -> None:
    stage(blob, a=b"a", b=b"b")
    commit(blob, "a")
    stage(blob, b=b"b", c=b"c")
    if end == "list":
        commit(blob, "c")
    elif end == "blob":
        blob.upload_blob(b"whole", overwrite=True)
    else:
        blob.delete_blob()
        blob.upload_blob(b"again")
    assert shown(blob, "uncommitted") == ([], [])
    with refused(400, "InvalidBlockList"):
        commit(blob, "b")


def test_a_commit_replaces_all_properties(blob: BlobClient) -> None:
    first = ContentSettings(content_type="text/plain", content_language="fr")
    stage(blob, a=b"content")
    commit(blob, "a", metadata={"a": "b"}, content_settings=first)
    old = blob.get_blob_properties()
    assert (old.metadata, old.blob_tier_inferred) == ({"a": "b"}, True)
    assert old.content_settings.content_type == "text/plain"
    claimed = bytearray(b"16 bytes of what")
    second = ContentSettings(cache_control="no-store", content_md5=claimed)
    tier = StandardBlobTier.COOL
    commit(blob, "a", metadata={"c": "d"}, content_settings=second, standard_blob_tier=tier)
    new = blob.get_blob_properties()
    assert new.etag != old.etag
    assert new.creation_time == old.creation_time
    assert new.metadata == {"c": "d"}
    assert new.blob_tier == "Cool"
    assert new.content_settings.content_type == "application/octet-stream"
    assert new.content_settings.content_language is None
    assert new.content_settings.cache_control == "no-store"
    # The blocks are not read again, so the MD5 is stored as given.
    assert new.content_settings.content_md5 == claimed
    commit(blob, "a")
    assert blob.get_blob_properties().content_settings.content_md5 is None
    assert blob.get_blob_properties().blob_tier_inferred is True


# Large blobs


def large(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def test_parallel_uploads_and_ranges_across_blocks(
    server: Server, container: ContainerClient
) -> None:
    content = large(3 * MIB + 17)
    with blob_service(server, max_single_put_size=64 * KIB, max_block_size=100 * KIB) as service:
        sender = service.get_blob_client(container.container_name, "large")
        sender.upload_blob(content, max_concurrency=4, metadata={"large": "yes"})
    blob = container.get_blob_client("large")
    committed, uncommitted = blob.get_block_list("all")
    assert [block.size for block in committed] == [100 * KIB] * 30 + [72 * KIB + 17]
    assert uncommitted == []
    assert blob.get_blob_properties().metadata == {"large": "yes"}
    assert blob.download_blob().readall() == content
    edge = 100 * KIB
    for start, length in ((edge - 1, 2), (edge, edge), (7, 2 * MIB), (3 * MIB, 100), (0, edge + 1)):
        part = blob.download_blob(start, length, validate_content=True)
        assert part.readall() == content[start : start + length]


def test_long_lists(blob: BlobClient) -> None:
    """The server builds them in steps, but commits them atomically."""
    stage(blob, a=b"a", b=b"bb", c=b"c")
    names = [*"abc"] * 1000
    with refused(412, "ConditionNotMet"):
        commit(blob, *names, etag=OTHER_ETAG, match_condition=MatchConditions.IfNotModified)
    with refused(400, "InvalidBlockList"):
        commit(blob, *names, "?")
    assert shown(blob) == ([], ["a", "b", "c"])
    commit(blob, *names)
    assert blob.download_blob().readall() == b"abbc" * 1000
    assert shown(blob) == (names, [])
    stage(blob, b=b"B")
    commit(blob, "b", *names)
    assert blob.download_blob().readall() == b"B" + b"aBc" * 1000
    with refused(400, "BlockListTooLong"):
        commit(blob, *"a" * 50_001)


def test_blocks_survive_a_crash(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        with blob_service(server) as service:
            blob = service.create_container("survivors").get_blob_client("blob")
            stage(blob, a=large(MIB), b=b"old")
            commit(blob, "a", "b")
            stage(blob, b=b"new", c=b"!")
        server.kill()
        server.start()
        with blob_service(server) as service:
            blob = service.get_blob_client("survivors", "blob")
            assert shown(blob) == (["a", "b"], ["b", "c"])
            commit(blob, "a", "b", "c")
            assert blob.download_blob().readall() == large(MIB) + b"new!"
        assert server.stop() == 0
    found = check(tmp_path / "data")
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_asynchronous_client(server: Server, container: ContainerClient) -> None:
    content = large(MIB + 1)

    async def main() -> None:
        options = {"max_single_put_size": 64 * KIB, "max_block_size": 64 * KIB}
        async with async_blob_service(server, **options) as service:
            blob = service.get_blob_client(container.container_name, "large")
            await blob.upload_blob(content, max_concurrency=4)
            assert await (await blob.download_blob()).readall() == content
            await asyncio.gather(*(blob.stage_block(str(n), b"%d" % n) for n in range(10)))
            _, uncommitted = await blob.get_block_list("uncommitted")
            assert [block.id for block in uncommitted] == list("0123456789")
            await blob.commit_block_list([BlobBlock(name) for name in "9876543210"])
            assert await (await blob.download_blob()).readall() == b"9876543210"

    asyncio.run(main())


# Several writers


def test_the_second_of_two_commits_fails(blob: BlobClient) -> None:
    stage(blob, a=b"of the first", b=b"of the second")
    etag = commit(blob, "a")
    with refused(400, "InvalidBlockList"):
        commit(blob, "b")
    assert blob.get_blob_properties().etag == etag
    assert blob.download_blob().readall() == b"of the first"


def test_concurrent_writers(server: Server, container: ContainerClient) -> None:
    """Each list has all of its own blocks or is refused; contents are never mixed."""
    wins: list[str] = []

    def write(letter: str) -> None:
        names = [f"{letter}{number}" for number in range(4)]
        with blob_service(server) as service:
            blob = service.get_blob_client(container.container_name, "blob")
            for _ in range(8):
                stage(blob, **{name: letter.encode() * 1000 for name in names})
                try:
                    commit(blob, *names)
                except HttpResponseError as error:
                    assert error.status_code == 400, error
                    assert "InvalidBlockList" in str(error)
                else:
                    wins.append(letter)
                    assert len(set(blob.download_blob().readall())) == 1

    writers = [threading.Thread(target=write, args=(letter,)) for letter in "xyz"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert wins
    assert container.download_blob("blob").readall() in {letter.encode() * 4000 for letter in "xyz"}


# Get Block List


def test_kinds_of_lists(blob: BlobClient) -> None:
    stage(blob, a=b"12345", b=b"123")
    etag = commit(blob, "b", "a")
    stage(blob, c=b"1", a=b"12")
    assert shown(blob, "committed") == (["b", "a"], [])
    assert shown(blob, "uncommitted") == ([], ["a", "c"])
    answer = ResponseRecorder()
    committed, uncommitted = blob.get_block_list("all", raw_response_hook=answer)
    assert [(block.id, block.size) for block in committed] == [("b", 3), ("a", 5)]
    assert [(block.id, block.size) for block in uncommitted] == [("a", 2), ("c", 1)]
    assert answer.headers["etag"] == etag
    assert answer.headers["x-ms-blob-content-length"] == "8"
    with refused(400, "InvalidQueryParameterValue"):
        blob.get_block_list("other")


def test_lists_of_blobs_without_blocks(blob: BlobClient) -> None:
    with refused(404, "BlobNotFound"):
        blob.get_block_list("all")
    blob.upload_blob(b"whole")
    assert shown(blob) == ([], [])


def test_the_list_of_a_snapshot(container: ContainerClient, blob: BlobClient) -> None:
    stage(blob, a=b"then")
    commit(blob, "a")
    stage(blob, b=b"now")
    snapshot = str(blob.create_snapshot()["snapshot"])
    commit(blob, "b")
    past = container.get_blob_client("blob", snapshot=snapshot)
    # Blocks staged at that time were not part of the blob, so they are not in the snapshot.
    assert shown(past) == (["a"], [])


def test_an_uncommitted_blob(container: ContainerClient, blob: BlobClient) -> None:
    container.upload_blob("other", b"")
    stage(blob, a=b"12345")
    answer = ResponseRecorder()
    blob.get_block_list("all", raw_response_hook=answer)
    assert "x-ms-blob-content-length" not in answer.headers
    assert "etag" not in answer.headers
    assert shown(blob) == ([], ["a"])
    assert [found.name for found in container.list_blobs()] == ["other"]
    listed, other = container.list_blobs(include=["uncommittedblobs"])
    assert (listed.name, listed.size, other.name) == ("blob", 0, "other")
    assert not listed.etag
    assert not blob.exists()
    for use in (blob.download_blob, blob.create_snapshot, blob.acquire_lease):
        with refused(404, "BlobNotFound"):
            use()
    blob.delete_blob()
    assert [found.name for found in container.list_blobs(include=["uncommittedblobs"])] == ["other"]
    with refused(404, "BlobNotFound"):
        blob.delete_blob()
    stage(blob, a=b"12345")
    commit(blob, "a")
    assert [found.size for found in container.list_blobs(include=["uncommittedblobs"])] == [5, 0]


# Names


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("no base64!", "InvalidQueryParameterValue"),
        ("YQ", "InvalidQueryParameterValue"),
        (base64.b64encode(b"x" * 65).decode(), "InvalidBlockId"),
        ("", "MissingRequiredQueryParameter"),
    ],
    ids=["not base64", "not padded", "too long", "empty"],
)
def test_invalid_names(blob: BlobClient, written: str, code: str) -> None:
    with refused(400, code):
        blob.stage_block("a", b"content", raw_request_hook=with_block_id(written))
    with refused(404, "BlobNotFound"):
        blob.get_block_list("all")


def test_names_of_any_bytes(blob: BlobClient) -> None:
    name = base64.b64encode(b"/?\xff\x00" * 16).decode()
    blob.stage_block("a", b"content", raw_request_hook=with_block_id(name))
    assert shown(blob) == ([], [name])  # bytes, which the client does not encode


def test_staged_names_have_one_length(blob: BlobClient) -> None:
    stage(blob, aa=b"content")
    with refused(400, "InvalidBlobOrBlock") as error:
        stage(blob, a=b"content")
    assert (error.details["blockidlength"], error.details["expectedlength"]) == ("1", "2")
    commit(blob, "aa")
    stage(blob, a=b"content")  # committed blocks do not bind later ones
    commit(blob, "a", "aa")


# Checksums


def test_checksums_of_blocks(blob: BlobClient) -> None:
    answer = ResponseRecorder()
    blob.stage_block("a", b"123456789", validate_content=True, raw_response_hook=answer)
    assert answer.headers["content-md5"] == md5_text(b"123456789")
    assert "x-ms-content-crc64" in answer.headers
    blob.stage_block("a", b"123456789", raw_response_hook=answer)
    crc = answer.headers["x-ms-content-crc64"]
    # The check value of CRC-64/NVME, lowest byte first.
    assert base64.b64decode(crc).hex() == "8898790a86148bae"
    blob.stage_block("b", b"123456789", raw_request_hook=with_headers(x_ms_content_crc64=crc))
    both = {"x_ms_content_crc64": crc, "Content_MD5": md5_text(b"other")}
    for code, sent in (
        ("Md5Mismatch", {"Content_MD5": md5_text(b"other")}),
        ("InvalidMd5", {"Content_MD5": "c2hvcnQ="}),
        ("Crc64Mismatch", {"x_ms_content_crc64": crc}),
        ("BothCrc64AndMd5HeaderPresent", both),
    ):
        with refused(400, code):
            blob.stage_block("c", b"changed", raw_request_hook=with_headers(**sent))
    assert shown(blob) == ([], ["a", "b"])


def test_checksums_of_long_blocks(blob: BlobClient) -> None:
    """They are computed by the thread that reads a block from its socket."""
    content = random.Random(1).randbytes((9 << 20) + 5)
    crc = base64.b64encode(crc64nvme(content).to_bytes(8, "little")).decode()
    answer = ResponseRecorder()
    blob.stage_block("a", content, validate_content=True, raw_response_hook=answer)
    assert answer.headers["content-md5"] == md5_text(content)
    result = with_headers(x_ms_content_crc64=crc)
    blob.stage_block("b", content, raw_request_hook=result, raw_response_hook=answer)
    assert answer.headers["x-ms-content-crc64"] == crc
    changed = content[:-1] + b"?"
    for code, sent in (
        ("Md5Mismatch", {"Content_MD5": md5_text(content)}),
        ("Crc64Mismatch", {"x_ms_content_crc64": crc}),
    ):
        with refused(400, code):
            blob.stage_block("c", changed, raw_request_hook=with_headers(**sent))
    assert shown(blob) == ([], ["a", "b"])
    commit(blob, "b", "a")
    assert blob.download_blob().readall() == 2 * content


def test_checksums_of_lists(blob: BlobClient) -> None:
    stage(blob, a=b"content")
    with refused(400, "Md5Mismatch"):
        commit(blob, "a", raw_request_hook=with_headers(Content_MD5=md5_text(b"another list")))
    assert shown(blob) == ([], ["a"])
    commit(blob, "a", validate_content=True)


# Sizes


def test_an_empty_block(blob: BlobClient) -> None:
    with refused(400, "InvalidHeaderValue") as error:
        stage(blob, a=b"")
    assert error.details["headername"] == "Content-Length"


@pytest.mark.parametrize(
    ("version", "mib_max"), [("2015-12-11", 4), ("2019-07-07", 100), ("2019-12-12", 4000)]
)
def test_blocks_that_are_too_large(blob: BlobClient, version: str, mib_max: int) -> None:
    """They are refused by their announced length, before any of the body is sent."""
    token = generate_blob_sas(
        ACCOUNT,
        blob.container_name,
        blob.blob_name,
        account_key=KEY,
        permission="rw",
        expiry=datetime.now(UTC) + HOUR,
    )
    url = urlsplit(blob.url)
    connection = http.client.HTTPConnection(url.netloc, timeout=20)
    connection.putrequest("PUT", f"{url.path}?comp=block&blockid=YQ%3D%3D&{token}")
    connection.putheader("x-ms-version", version)
    connection.putheader("Content-Length", str(mib_max * MIB + 1))
    connection.endheaders()
    response = connection.getresponse()
    assert response.status == 413
    assert response.getheader("x-ms-error-code") == "RequestBodyTooLarge"
    assert f"<MaxLimit>{mib_max * MIB}</MaxLimit>".encode() in response.read()
    connection.close()


# Conditions


def test_conditions_of_commits(blob: BlobClient) -> None:
    stage(blob, a=b"old")
    with refused(412, "ConditionNotMet"):
        commit(blob, "a", etag=OTHER_ETAG, match_condition=MatchConditions.IfNotModified)
    etag = commit(blob, "a", match_condition=MatchConditions.IfMissing)
    changed = blob.get_blob_properties().last_modified
    stage(blob, b=b"new")
    with refused(409, "BlobAlreadyExists"):
        commit(blob, "b", match_condition=MatchConditions.IfMissing)
    unmet: list[dict[str, Any]] = [
        {"etag": OTHER_ETAG, "match_condition": MatchConditions.IfNotModified},
        {"etag": etag, "match_condition": MatchConditions.IfModified},
        {"if_modified_since": changed},
        {"if_unmodified_since": changed - HOUR},
    ]
    for conditions in unmet:
        with refused(412, "ConditionNotMet"):
            commit(blob, "b", **conditions)
    assert blob.get_blob_properties().etag == etag
    assert shown(blob) == (["a"], ["b"])
    commit(blob, "b", etag=etag, match_condition=MatchConditions.IfNotModified)
    assert blob.download_blob().readall() == b"new"


def test_put_block_and_get_block_list_take_no_conditions(blob: BlobClient) -> None:
    stage(blob, a=b"content")
    hook = with_headers(If_Match=OTHER_ETAG)
    with refused(400, "ConditionHeadersNotSupported"):
        blob.stage_block("b", b"content", raw_request_hook=hook)
    with refused(400, "ConditionHeadersNotSupported"):
        blob.get_block_list("all", raw_request_hook=hook)
    assert shown(blob) == ([], ["a"])


def test_a_missing_container(server: Server) -> None:
    with blob_service(server) as service:
        blob = service.get_blob_client(unique("missing"), "blob")
        for use in (
            lambda: stage(blob, a=b"content"),
            lambda: commit(blob, "a"),
            lambda: blob.get_block_list("all"),
        ):
            with refused(404, "ContainerNotFound"):
                use()
