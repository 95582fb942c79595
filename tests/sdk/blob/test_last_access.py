"""Last access times through the SDK."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.storage.blob import BlobClient, BlobProperties, BlobServiceClient, ContainerClient

from tests.sdk.blob.clients import blob_service
from tests.sdk.harness import ResponseRecorder
from tests.sdk.test_clocks import Machine
from tests.server import Server, check, eventually, served, unique

TRACKING = "--last-access-time-tracking"
HEADER = "x-ms-last-access-time"
HOUR_SECONDS = 3_600


@pytest.fixture(scope="module")
def tracking_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("tracking") / "data"
    with served(directory, TRACKING) as server:
        yield server
        assert server.stop() == 0
        assert check(directory).returncode == 0


@pytest.fixture(scope="module")
def tracking_service(tracking_server: Server) -> Iterator[BlobServiceClient]:
    with blob_service(tracking_server) as client:
        yield client


@pytest.fixture
def tracked(tracking_service: BlobServiceClient) -> ContainerClient:
    return tracking_service.create_container(unique())


def accessed(blob: BlobClient) -> datetime:
    found = blob.get_blob_properties().last_accessed_on
    assert found is not None
    return found


def listed(container: ContainerClient, **options: Any) -> list[BlobProperties]:
    return list(container.list_blobs(**options))


def next_second() -> None:
    """Dates have seconds."""
    time.sleep(1.05 - time.time() % 1)


def test_a_write_is_an_access(tracked: ContainerClient) -> None:
    blob = tracked.upload_blob("blob", b"content")
    first = blob.get_blob_properties()
    assert first.last_accessed_on == first.last_modified
    assert [found.last_accessed_on for found in listed(tracked)] == [first.last_accessed_on]
    next_second()
    blob.set_blob_metadata({"a": "b"})
    second = blob.get_blob_properties()
    assert second.last_accessed_on == second.last_modified > first.last_modified
    next_second()
    tracked.upload_blob("blob", b"other", overwrite=True)
    assert accessed(blob) == blob.get_blob_properties().last_modified > second.last_modified


def test_the_first_read_is_an_access_and_changes_nothing_else(tracked: ContainerClient) -> None:
    blob = tracked.upload_blob("blob", b"content")
    written = blob.get_blob_properties()
    next_second()
    answer = ResponseRecorder()
    downloaded = blob.download_blob(raw_response_hook=answer)
    # The answer does not wait for the record of the read.
    assert downloaded.properties.last_accessed_on == written.last_modified
    assert answer.status == 206
    assert HEADER in answer.headers
    eventually(lambda: accessed(blob) > written.last_modified, "the record of the read")
    read = blob.get_blob_properties()
    assert (read.etag, read.last_modified) == (written.etag, written.last_modified)
    assert [found.last_accessed_on for found in listed(tracked)] == [read.last_accessed_on]
    # The second read of 24 hours.
    next_second()
    blob.download_blob().readall()
    time.sleep(1.5)
    assert accessed(blob) == read.last_accessed_on
    # If it is modified between reads, the last access is the later of the two.
    blob.set_blob_metadata({"a": "b"})
    blob.download_blob().readall()
    time.sleep(1.5)
    changed = blob.get_blob_properties()
    assert changed.last_accessed_on == changed.last_modified > written.last_modified


def test_a_lease_does_not_matter(tracked: ContainerClient) -> None:
    blob = tracked.upload_blob("blob", b"content")
    lease = blob.acquire_lease()
    before = accessed(blob)
    next_second()
    blob.download_blob().readall()
    eventually(lambda: accessed(blob) > before, "the record of the read")
    assert blob.get_blob_properties().lease.state == "leased"
    lease.release()


def test_reads_of_properties_and_failed_reads_are_no_accesses(tracked: ContainerClient) -> None:
    blob = tracked.upload_blob("blob", b"content", tags={"a": "b"})
    before = accessed(blob)
    next_second()
    blob.get_blob_properties()
    blob.get_blob_tags()
    blob.get_block_list()
    listed(tracked, include=["metadata"])
    with pytest.raises(Exception, match="ConditionNotMet"):
        blob.download_blob(etag='"0x1"', match_condition=MatchConditions.IfNotModified)
    with pytest.raises(Exception, match="InvalidRange"):
        blob.download_blob(offset=100)
    time.sleep(1.5)
    assert accessed(blob) == before


def test_snapshots_and_other_types_have_none(tracked: ContainerClient) -> None:
    blob = tracked.upload_blob("block", b"content")
    moment = str(blob.create_snapshot()["snapshot"])
    snapshot = tracked.get_blob_client("block", snapshot=moment)
    page, append = tracked.get_blob_client("page"), tracked.get_blob_client("append")
    page.create_page_blob(512)
    append.create_append_blob()
    for one in (snapshot, page, append):
        assert one.get_blob_properties().last_accessed_on is None
        assert one.download_blob().properties.last_accessed_on is None
    shown = [
        (found.name, found.snapshot is not None, found.last_accessed_on is not None)
        for found in listed(tracked, include=["snapshots"])
    ]
    assert shown == [
        ("append", False, False),
        ("block", True, False),
        ("block", False, True),
        ("page", False, False),
    ]


@pytest.mark.parametrize(("version", "is_shown"), [("2019-12-12", False), ("2020-02-10", True)])
def test_old_versions_are_told_nothing(
    tracking_server: Server, tracked: ContainerClient, version: str, is_shown: bool
) -> None:
    tracked.upload_blob("blob", b"content")
    with blob_service(tracking_server, api_version=version) as service:
        container = service.get_container_client(tracked.container_name)
        blob = container.get_blob_client("blob")
        for shown in (blob.get_blob_properties(), blob.download_blob().properties):
            assert (shown.last_accessed_on is not None) is is_shown
        assert [found.last_accessed_on is not None for found in listed(container)] == [is_shown]


def test_nothing_is_tracked_unless_it_is_set(container: ContainerClient) -> None:
    blob = container.upload_blob("blob", b"content")
    answer = ResponseRecorder()
    blob.download_blob(raw_response_hook=answer).readall()
    assert HEADER not in answer.headers
    blob.get_blob_properties(raw_response_hook=answer)
    assert HEADER not in answer.headers
    assert [found.last_accessed_on for found in listed(container)] == [None]


@contextlib.contextmanager
def served_after(machine: Machine, hours: int) -> Iterator[BlobServiceClient]:
    """A server, so many hours after the first one."""
    machine.reboot(hours * HOUR_SECONDS)
    with machine.served(TRACKING) as server, blob_service(server) as service:
        yield service


def test_one_read_of_24_hours_is_recorded(tmp_path: Path) -> None:
    """Also one just before the server stops."""
    machine = Machine(tmp_path)
    with served_after(machine, 0) as service:
        blob = service.create_container("box").upload_blob("blob", b"content")
        written = blob.get_blob_properties()
        next_second()
        blob.download_blob().readall()
    with served_after(machine, 23) as service:
        blob = service.get_blob_client("box", "blob")
        first = accessed(blob)
        assert timedelta() < first - written.last_modified < timedelta(minutes=5)
        blob.download_blob().readall()
    with served_after(machine, 25) as service:
        blob = service.get_blob_client("box", "blob")
        assert accessed(blob) == first
        blob.download_blob().readall()
        eventually(lambda: accessed(blob) > first, "the record of the read")
        assert accessed(blob) - first > timedelta(hours=24.9)
        shown = blob.get_blob_properties()
        assert (shown.etag, shown.last_modified) == (written.etag, written.last_modified)
    assert machine.run("check").returncode == 0
