"""Copies during other requests, from other servers, and across restarts."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError
from azure.storage.blob import BlobClient, BlobLeaseClient, BlobProperties, ContainerClient

from etagere.jobs.copying import COPIES_MAX
from tests.sdk.blob.clients import blob_service
from tests.sdk.harness import ResponseRecorder, refused
from tests.sdk.origin import BODY, Origin
from tests.server import Server, check, eventually, served, unique

PENDING = "PendingCopyOperation"
ROUNDS = 40


@pytest.fixture
def copy(own: Server) -> BlobClient:
    return blob_service(own).create_container(unique()).get_blob_client("copy")


def same(server: Server, blob: BlobClient) -> BlobClient:
    """Returns the blob at the server's current URL."""
    return blob_service(server).get_blob_client(blob.container_name, blob.blob_name)


def ended(blob: BlobClient) -> BlobProperties:
    eventually(lambda: blob.get_blob_properties().copy.status != "pending", "the end of a copy")
    return blob.get_blob_properties()


def begin(copy: BlobClient, origin: Origin, **options: Any) -> str:
    result = copy.start_copy_from_url(origin.url("slow"), **options)
    assert result["copy_status"] == "pending"
    return str(result["copy_id"])


def test_copies_from_another_server_are_asynchronous(copy: BlobClient, origin: Origin) -> None:
    copy.upload_blob(b"old")
    copy_id = begin(copy, origin)
    held = copy.get_blob_properties()
    assert (held.copy.status, held.copy.id, held.size) == ("pending", copy_id, 0)
    assert held.copy.source == origin.url("slow")
    half = f"{len(BODY) // 2}/{len(BODY)}"
    assert held.copy.progress in (f"0/{len(BODY)}", half)
    calls: list[Callable[[], Any]] = [
        lambda: copy.upload_blob(b"other", overwrite=True),
        lambda: copy.set_blob_metadata({"a": "b"}),
        lambda: begin(copy, origin),
        copy.delete_blob,
        copy.create_snapshot,
        copy.acquire_lease,
    ]
    for call in calls:
        with refused(409, PENDING):
            call()
    with refused(409, "CopyIdMismatch"):
        copy.abort_copy("11111111-2222-3333-4444-555555555555")
    origin.go_on.set()
    done = ended(copy)
    assert (done.copy.status, done.copy.id, done.size) == ("success", copy_id, len(BODY))
    assert done.copy.progress == f"{len(BODY)}/{len(BODY)}"
    assert done.copy.completion_time is not None
    assert (done.metadata, done.content_settings.content_type) == (
        {"from": "elsewhere"},
        "text/origin",
    )
    assert done.etag != held.etag
    assert copy.download_blob().readall() == BODY
    with refused(409, "NoPendingCopyOperation"):
        copy.abort_copy(copy_id)
    copy.delete_blob()


def test_a_copy_can_be_aborted(own: Server, copy: BlobClient, origin: Origin) -> None:
    copy.upload_blob(b"old")
    lease = copy.acquire_lease(-1)
    with refused(412, "LeaseIdMissing"):
        begin(copy, origin)
    copy_id = begin(copy, origin, destination_lease=lease)
    with refused(412, "LeaseIdMissing"):
        copy.abort_copy(copy_id)
    answer = ResponseRecorder()
    copy.abort_copy(copy_id, lease=lease, raw_response_hook=answer)
    assert answer.status == 204
    left = copy.get_blob_properties()
    assert (left.copy.status, left.size) == ("aborted", 0)
    assert left.metadata == {"from": "elsewhere"}
    origin.go_on.set()
    copy.upload_blob(b"new", overwrite=True, lease=lease)
    assert copy.download_blob().readall() == b"new"
    assert own.stop() == 0
    assert check(own.directory).returncode == 0


def test_a_finite_lease_is_not_enough(copy: BlobClient, origin: Origin) -> None:
    copy.upload_blob(b"old")
    lease = copy.acquire_lease(15)
    with refused(412, "InfiniteLeaseDurationRequired"):
        begin(copy, origin, destination_lease=lease)
    assert copy.download_blob().readall() == b"old"


def test_pending_copies_are_limited(own: Server, copy: BlobClient, origin: Origin) -> None:
    container = blob_service(own).get_container_client(copy.container_name)
    copies = [container.get_blob_client(f"copy-{number}") for number in range(COPIES_MAX)]
    for each in copies:
        begin(each, origin)
    with refused(503, "ServerBusy"):
        begin(copy, origin)
    assert not copy.exists()
    origin.go_on.set()
    for each in copies:
        assert ended(each).copy.status == "success"
    begin(copy, origin)
    assert ended(copy).copy.status == "success"


def test_two_front_ends(tmp_path: Path, origin: Origin) -> None:
    """Whichever front end gets the request, and whichever runs the copy."""
    flags = ("--copy-source", f"127.0.0.1:{origin.server_port}", "--workers", "2")
    with served(tmp_path / "two", *flags) as server:
        container = blob_service(server).create_container("box")
        for number in range(12):
            copy = blob_service(server).get_blob_client("box", f"copy-{number}")
            copy_id = begin(copy, origin)
            same(server, copy).abort_copy(copy_id)
            with refused(409, "NoPendingCopyOperation"):
                same(server, copy).abort_copy(copy_id)
            assert copy.get_blob_properties().copy.status == "aborted"
        origin.go_on.set()
        for number in range(12):
            copy = container.get_blob_client(f"copy-{number}")
            copy.start_copy_from_url(origin.url("right"))
            assert ended(copy).copy.status == "success"
            assert copy.download_blob().readall() == BODY
        assert server.stop() == 0
        assert check(server.directory).returncode == 0


def test_sources_that_fail(copy: BlobClient, origin: Origin) -> None:
    with refused(404, "CannotVerifyCopySource"):
        copy.start_copy_from_url(origin.url("missing"))
    assert not copy.exists()
    for name in ("short", "wrong"):
        assert copy.start_copy_from_url(origin.url(name))["copy_status"] == "pending"
        left = ended(copy)
        assert (left.copy.status, left.size) == ("failed", 0)
        assert left.copy.status_description
    copy.start_copy_from_url(origin.url("right"))
    assert ended(copy).copy.status == "success"
    assert copy.download_blob().readall() == BODY


def test_copy_blob_from_url_from_another_server(copy: BlobClient, origin: Origin) -> None:
    result = copy.start_copy_from_url(origin.url("plain?sig=secret"), requires_sync=True)
    assert result["copy_status"] == "success"
    shown = copy.get_blob_properties()
    assert (shown.metadata, shown.size) == ({"from": "elsewhere"}, len(BODY))
    assert shown.copy.source == origin.url("plain")
    assert copy.download_blob().readall() == BODY
    with pytest.raises(HttpResponseError):
        copy.start_copy_from_url(origin.url("short"), requires_sync=True)
    assert copy.download_blob().readall() == BODY


# Restarts


def kill_front_end(server: Server) -> None:
    front_end = server.front_end()
    os.kill(front_end, signal.SIGKILL)
    eventually(lambda: front_end not in server.children(), "the end of the front end")


def restart_killed(server: Server) -> None:
    server.kill()
    server.start()


def restart_stopped(server: Server) -> None:
    assert server.stop() == 0
    server.start()


@pytest.mark.parametrize("end", [kill_front_end, restart_killed, restart_stopped])
def test_an_interrupted_copy_fails(
    own: Server, copy: BlobClient, origin: Origin, end: Callable[[Server], None]
) -> None:
    begin(copy, origin)
    end(own)
    copy = same(own, copy)

    def has_failed() -> bool:
        try:
            return copy.get_blob_properties().copy.status == "failed"
        except AzureError:  # before the front end has restarted
            return False

    eventually(has_failed, "the end of a copy")
    left = copy.get_blob_properties()
    assert left.size == 0
    assert "OperationCancelled" in str(left.copy.status_description)
    copy.upload_blob(b"new", overwrite=True)
    origin.go_on.set()
    assert own.stop() == 0
    assert check(own.directory).returncode == 0


# Other requests


def versions() -> list[tuple[bytes, dict[str, str]]]:
    return [(letter.encode() * 100_000, {"version": letter}) for letter in "ab"]


def whole(blob: BlobClient) -> bool:
    found = blob.download_blob()
    return (found.readall(), found.properties.metadata) in versions()


def test_a_changing_source_is_copied_atomically(container: ContainerClient) -> None:
    source, copy = container.get_blob_client("source"), container.get_blob_client("copy")
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            for data, metadata in versions():
                source.upload_blob(data, overwrite=True, metadata=metadata)

    source.upload_blob(versions()[0][0], metadata=versions()[0][1])
    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(change)
        try:
            for _ in range(ROUNDS):
                copy.start_copy_from_url(source.url)
                assert whole(copy)
        finally:
            stop.set()
        changing.result()


def test_a_deleted_source_is_copied_or_missing(container: ContainerClient) -> None:
    source, copy = container.get_blob_client("source"), container.get_blob_client("copy")
    data, metadata = versions()[0]

    def attempt() -> int:
        try:
            copy.start_copy_from_url(source.url)
        except ResourceNotFoundError as error:
            return error.status_code or 0
        return 202

    with ThreadPoolExecutor(2) as pool:
        for _ in range(ROUNDS):
            source.upload_blob(data, metadata=metadata)
            result = pool.submit(attempt)
            source.delete_blob()
            assert result.result() in (202, 404)
            if copy.exists():
                assert whole(copy)
                copy.delete_blob()


def test_two_copies_to_one_destination(container: ContainerClient) -> None:
    sources = [
        container.upload_blob(metadata["version"], data, metadata=metadata)
        for data, metadata in versions()
    ]
    copy = container.get_blob_client("copy")
    with ThreadPoolExecutor(4) as pool:
        for _ in range(ROUNDS):
            addresses = [source.url for source in sources * 2]
            result = list(pool.map(copy.start_copy_from_url, addresses))
            assert len({answer["copy_id"] for answer in result}) == 4
            assert whole(copy)
            last = copy.get_blob_properties()
            (won,) = [answer for answer in result if answer["copy_id"] == last.copy.id]
            assert won["etag"] == last.etag


def test_a_copy_and_a_lease(container: ContainerClient) -> None:
    source = container.upload_blob("source", b"new")
    for number in range(ROUNDS):
        copy = container.upload_blob(f"copy-{number}", b"old")
        lease = BlobLeaseClient(copy)
        with ThreadPoolExecutor(2) as pool:
            leased = pool.submit(lease.acquire, 15)
            copied = pool.submit(copy.start_copy_from_url, source.url)
            leased.result()
            try:
                copied.result()
                expected = b"new"
            except HttpResponseError as error:
                assert error.status_code == 412
                expected = b"old"
        # The lease came second, or it excluded the copy.
        assert copy.download_blob().readall() == expected
        assert copy.get_blob_properties().lease.state == "leased"


def _of_all_kinds(container: ContainerClient) -> list[BlobClient]:
    """Returns two blobs of each kind."""
    blobs = [container.upload_blob(f"block-{n}", bytes([n]) * 40_000) for n in (1, 2)]
    for n in (1, 2):
        blobs.append(container.get_blob_client(f"page-{n}"))
        blobs[-1].create_page_blob(64 << 10)
        blobs[-1].upload_page(bytes([n]) * (32 << 10), 0, 32 << 10)
    for n in (1, 2):
        blobs.append(container.get_blob_client(f"append-{n}"))
        blobs[-1].create_append_blob()
        blobs[-1].append_block(bytes([n]) * 40_000)
    return blobs


def test_reference_counts_are_right(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        blobs = _of_all_kinds(blob_service(server).create_container("box"))

        def copy_around(worker: int) -> None:
            for turn in range(36):
                pair = turn % 3 * 2
                source, target = blobs[pair + worker % 2], blobs[pair + turn % 2]
                with contextlib.suppress(HttpResponseError):
                    target.start_copy_from_url(source.url)
                with contextlib.suppress(HttpResponseError):
                    if pair == 2:
                        target.upload_page(b"x" * 512, 512 * turn, 512)
                    if pair == 4:
                        target.append_block(b"x" * 512)
                with contextlib.suppress(HttpResponseError):
                    target.create_snapshot()
                with contextlib.suppress(HttpResponseError):
                    if turn % 11 == worker:
                        source.delete_blob(delete_snapshots="include")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(copy_around, range(4)))
        assert server.stop() == 0
        found = check(server.directory)
        assert found.returncode == 0, found.stdout + found.stderr
        assert "Traceback" not in server.log()
