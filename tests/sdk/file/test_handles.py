"""Handles that SMB clients have open: listed, closed, and in the way of requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.storage.fileshare import (
    ContentSettings,
    ShareClient,
    ShareLeaseClient,
    ShareServiceClient,
)
from azure.storage.fileshare import Handle as ListedHandle

from etagere.opens.requests import CacheNotifier, CachingRequest
from etagere.opens.table import REST_WAIT_SECONDS_MAX
from etagere.rules.caching import Caching
from etagere.rules.dates import parse_instant
from etagere.rules.opens import EVERYTHING, Access
from tests.sdk.file.front_end import SESSION, FileFrontEnd, file_front_end
from tests.sdk.harness import ResponseRecorder, now, refused, with_headers
from tests.server import ACCOUNT, KEY, Server, unique

R, W, D = Access.READ, Access.WRITE, Access.DELETE
NONE = Access.NONE


@pytest.fixture(scope="module")
def front_end(server: Server) -> Iterator[FileFrontEnd]:
    with file_front_end(server) as running:
        yield running


@pytest.fixture(scope="module")
def files(front_end: FileFrontEnd) -> Iterator[ShareServiceClient]:
    credential = {"account_name": ACCOUNT, "account_key": KEY}
    with ShareServiceClient(front_end.url, credential, retry_total=0) as client:
        yield client


@pytest.fixture
def share(files: ShareServiceClient, front_end: FileFrontEnd) -> Iterator[ShareClient]:
    created = files.create_share(unique("share"))
    created.create_directory("Papers")
    created.get_directory_client("Papers").create_subdirectory("2024")
    created.get_file_client("Papers/2024/Report.txt").upload_file(b"0123456789")
    created.get_file_client("notes & more.txt").create_file(10)
    yield created
    front_end.close_all(created.share_name)
    created.delete_share(delete_snapshots=True)


REPORT = "Papers/2024/Report.txt"
NOTES = "notes & more.txt"


class TextRecorder:
    """A response hook that keeps the body of the last response."""

    text = ""

    def __call__(self, response: Any) -> None:
        self.text = response.http_response.text()


def ids(handles: Any) -> list[str]:
    return [handle.id for handle in handles]


# Listing


def test_a_listed_handle(share: ShareClient, front_end: FileFrontEnd) -> None:
    file, answer = share.get_file_client(REPORT), ResponseRecorder()
    opened = front_end.open(share.share_name, REPORT.upper(), R | D)
    (handle,) = file.list_handles(raw_response_hook=answer)
    assert isinstance(handle, ListedHandle)
    shown = file.get_file_properties()
    assert (handle.id, handle.path) == (str(opened.id), REPORT)
    assert (handle.file_id, handle.parent_id) == (shown.file_id, shown.parent_id)
    assert (handle.session_id, handle.client_ip) == (str(SESSION.id), SESSION.client_address)
    assert handle.client_name == SESSION.client_name
    assert handle.access_rights == ["Read", "Delete"]
    assert abs(handle.open_time - now()) < timedelta(minutes=1)
    assert handle.last_reconnect_time is None
    opened.reconnected = opened.opened + 10_000_000
    (handle,) = file.list_handles()
    assert handle.last_reconnect_time == handle.open_time + timedelta(seconds=1)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/xml"


@pytest.mark.parametrize(
    ("version", "rights", "name"),
    [("2021-06-08", False, False), ("2023-01-03", True, False), ("2024-02-04", True, True)],
)
def test_elements_by_version(
    share: ShareClient, front_end: FileFrontEnd, version: str, rights: bool, name: bool
) -> None:
    front_end.open(share.share_name, "", W)
    answer = TextRecorder()
    root = share.get_directory_client("")
    older = with_headers(x_ms_version=version)
    list(root.list_handles(raw_request_hook=older, raw_response_hook=answer))
    text = answer.text
    assert ("<AccessRightList><AccessRight>Write</AccessRight></AccessRightList>" in text) is rights
    assert ("<ClientName>workstation &amp; &lt;co&gt;</ClientName>" in text) is name
    assert "<Path /><FileId>0</FileId><ParentId>0</ParentId><SessionId>41</SessionId>" in text
    assert text.endswith("</Entries><NextMarker /></EnumerationResults>")


def test_handles_of_directories_and_below_them(share: ShareClient, front_end: FileFrontEnd) -> None:
    name = share.share_name
    opened = {
        path: str(front_end.open(name, path).id)
        for path in ("", "Papers", "Papers/2024", REPORT, NOTES)
    }
    for path, below in (
        ("", list(opened)),
        ("Papers", ["Papers", "Papers/2024", REPORT]),
        ("Papers/2024", ["Papers/2024", REPORT]),
    ):
        directory = share.get_directory_client(path)
        assert ids(directory.list_handles()) == [opened[path]]
        assert ids(directory.list_handles(recursive=True)) == [opened[one] for one in below]
    for path in (REPORT, NOTES):
        (handle,) = share.get_file_client(path).list_handles()
        assert (handle.id, handle.path) == (opened[path], path)


def test_pages(share: ShareClient, front_end: FileFrontEnd) -> None:
    opened = [front_end.open(share.share_name, REPORT) for _ in range(7)]
    root, answer = share.get_directory_client(""), TextRecorder()
    pages = root.list_handles(recursive=True, results_per_page=3).by_page()
    first = ids(next(pages))
    # Some close and others open while the client reads.
    front_end.close(share.share_name, opened[1], opened[4])
    late = front_end.open(share.share_name, NOTES)
    rest = [ids(page) for page in pages]
    expected = [str(opened[at].id) for at in (3, 5, 6)] + [str(late.id)]
    assert first == [str(handle.id) for handle in opened[:3]]
    assert [one for page in rest for one in page] == expected
    assert [len(page) for page in rest] == [3, 1]
    list(root.list_handles(results_per_page=2, recursive=True, raw_response_hook=answer))
    assert "<MaxResults>2</MaxResults><Marker>" in answer.text


def test_handles_in_a_snapshot(share: ShareClient, front_end: FileFrontEnd) -> None:
    snapshot = share.create_snapshot()["snapshot"]
    opened = front_end.open(share.share_name, REPORT, snapshot=parse_instant(snapshot))
    assert ids(share.get_file_client(REPORT).list_handles()) == []
    service = share.get_file_client(REPORT)
    of_snapshot = type(service)(
        share.url.rsplit("/", 1)[0],
        share.share_name,
        REPORT,
        snapshot=snapshot,
        credential=share.credential,
        retry_total=0,
    )
    assert ids(of_snapshot.list_handles()) == [str(opened.id)]
    share.get_file_client(REPORT).delete_file()
    assert ids(of_snapshot.list_handles()) == [str(opened.id)]
    assert of_snapshot.close_all_handles()["closed_handles_count"] == 1
    assert front_end.told[-1] is opened


# Force close


def test_closing_one_handle(share: ShareClient, front_end: FileFrontEnd) -> None:
    file, answer = share.get_file_client(REPORT), ResponseRecorder()
    first, second = (front_end.open(share.share_name, REPORT) for _ in range(2))
    closed = file.close_handle(str(first.id), raw_response_hook=answer)
    assert closed == {"closed_handles_count": 1, "failed_handles_count": 0}
    assert answer.headers["content-length"] == "0"
    assert "x-ms-marker" not in answer.headers
    assert front_end.told[-1] is first
    assert not first.is_open
    # A handle that is closed already, and those of other files.
    other = front_end.open(share.share_name, NOTES)
    for missing in (first.id, other.id, 1, (1 << 64) - 1):
        assert file.close_handle(str(missing))["closed_handles_count"] == 0
    assert ids(file.list_handles()) == [str(second.id)]
    root = share.get_directory_client("")
    assert root.close_handle(str(second.id))["closed_handles_count"] == 0
    root.close_handle(str(second.id), headers={"x-ms-recursive": "true"})
    assert not second.is_open
    assert other.is_open


def test_closing_all_handles(share: ShareClient, front_end: FileFrontEnd) -> None:
    name = share.share_name
    paths = ("", "Papers", "Papers/2024", REPORT, NOTES)
    opened = {path: front_end.open(name, path) for path in paths}
    papers = share.get_directory_client("Papers")
    assert papers.close_all_handles()["closed_handles_count"] == 1
    assert not opened["Papers"].is_open
    assert opened[REPORT].is_open
    assert papers.close_all_handles(recursive=True)["closed_handles_count"] == 2
    assert opened[NOTES].is_open
    root = share.get_directory_client("")
    assert root.close_all_handles(recursive=True)["closed_handles_count"] == 2
    assert root.close_all_handles(recursive=True)["closed_handles_count"] == 0
    papers.rename_directory("Documents")


def test_closing_many_handles_takes_several_requests(
    share: ShareClient, front_end: FileFrontEnd
) -> None:
    """The SDK follows the markers."""
    for _ in range(1_200):
        front_end.open(share.share_name, REPORT)
    markers = []

    def record(response: Any) -> None:
        markers.append(response.http_response.headers.get("x-ms-marker"))

    closed = share.get_file_client(REPORT).close_all_handles(raw_response_hook=record)
    assert closed["closed_handles_count"] == 1_200
    assert len(markers) == 3
    assert markers[-1] is None
    assert ids(share.get_file_client(REPORT).list_handles()) == []


def test_closing_the_last_handle_deletes_a_pending_file(
    share: ShareClient, front_end: FileFrontEnd
) -> None:
    file = share.get_file_client(REPORT)
    handle = front_end.open(share.share_name, REPORT, D)
    front_end.run(front_end.client(share.share_name).set_delete_pending(handle))
    with refused(409, "SMBDeletePending"):
        file.get_file_properties()
    with refused(409, "SMBDeletePending"):
        file.upload_range(b"x", 0, 1)
    assert list(share.list_directories_and_files("Papers/2024")) == []
    assert ids(file.list_handles()) == [str(handle.id)]
    assert file.close_all_handles()["closed_handles_count"] == 1
    with refused(404, "ResourceNotFound"):
        file.get_file_properties()


def test_bad_requests(share: ShareClient, front_end: FileFrontEnd) -> None:
    missing = share.get_file_client("missing")
    for bad in ("nonexistent", "-1", "1.5", "0x10", str(1 << 64), "9" * 40, "**"):
        with refused(400, "InvalidHeaderValue"):
            missing.close_handle(bad)
    with refused(404, "ResourceNotFound"):
        missing.close_handle("1")
    with refused(404, "ResourceNotFound"):
        list(missing.list_handles())
    with refused(404, "ParentNotFound"):
        list(share.get_file_client("missing/file").list_handles())
    root = share.get_directory_client("")
    with refused(400, "InvalidHeaderValue"):
        list(root.list_handles(raw_request_hook=with_headers(x_ms_recursive="perhaps")))
    with refused(400, "OutOfRangeQueryParameterValue"):
        list(root.list_handles(results_per_page=0))
    for marker in ("x", "1!4!eHg-", "1!0!"):
        with refused(400, "InvalidQueryParameterValue"):
            list(root.list_handles().by_page(marker))


# In the way of requests


def test_requests_while_a_file_is_open(share: ShareClient, front_end: FileFrontEnd) -> None:
    file = share.get_file_client(REPORT)
    operations: dict[str, Callable[[], object]] = {
        "properties": file.get_file_properties,
        "list": lambda: list(share.list_directories_and_files("Papers/2024")),
        "get": lambda: file.download_file().readall(),
        "ranges": lambda: list(file.list_ranges()),
        "put": lambda: file.upload_range(b"x", 0, 1),
        "clear": lambda: file.clear_range(0, 512),
        "headers": lambda: file.set_http_headers(ContentSettings()),
        "metadata": lambda: file.set_file_metadata({"a": "b"}),
        "resize": lambda: file.resize_file(1_024),
        "create": lambda: file.create_file(1_024),
        "lease": lambda: ShareLeaseClient(file).acquire(),
        "delete": file.delete_file,
        "rename": lambda: file.rename_file("elsewhere.txt"),
    }
    reading, writing = {"get", "ranges"}, {"put", "clear", "headers", "metadata", "resize"}
    failing: dict[Access, set[str]] = {
        NONE: {*reading, *writing, "create", "lease", "delete", "rename"},
        R: {*writing, "create", "lease", "delete", "rename"},
        W: {*reading, "create", "lease", "delete", "rename"},
        R | W: {"create", "lease", "delete", "rename"},
        EVERYTHING: {"delete"},
    }
    file.resize_file(1_024)
    for share_mode, expected in failing.items():
        handle = front_end.open(share.share_name, REPORT, R, share_mode)
        for name, operation in operations.items():
            if name in expected:
                with refused(409, "SharingViolation"):
                    operation()
            elif name == "lease":
                ShareLeaseClient(file).acquire()
                ShareLeaseClient(file).break_lease()
            elif name == "rename":
                file.rename_file("elsewhere.txt").rename_file(REPORT)
            else:
                operation()
        front_end.close(share.share_name, handle)


def test_locks(share: ShareClient, front_end: FileFrontEnd) -> None:
    file = share.get_file_client(REPORT)
    handle = front_end.open(share.share_name, REPORT, R | W)
    locks = front_end.client(share.share_name)
    front_end.run(locks.lock(handle, 4, 6, exclusive=True))
    with refused(409, "FileLockConflict"):
        file.upload_range(b"x", 9, 1)
    with refused(409, "FileLockConflict"):
        file.download_file().readall()
    with refused(409, "FileLockConflict"):
        file.download_file(offset=5, length=1).readall()
    assert file.download_file(offset=0, length=4).readall() == b"0123"
    assert file.download_file(offset=6, length=4).readall() == b"6789"
    list(file.list_ranges())
    file.set_file_metadata({"a": "b"})
    front_end.call(lambda: locks.unlock(handle, [(4, 6)]))
    file.upload_range(b"x", 9, 1)


def test_a_leased_file_is_opened_for_reading_only(
    share: ShareClient, front_end: FileFrontEnd
) -> None:
    lease = ShareLeaseClient(share.get_file_client(REPORT))
    front_end.client(share.share_name)
    lease.acquire()
    front_end.open(share.share_name, REPORT, R)
    with pytest.raises(Exception, match="SharingViolation"):
        front_end.open(share.share_name, REPORT, W)
    lease.release()
    front_end.open(share.share_name, REPORT, W)


def test_directories_with_open_files(share: ShareClient, front_end: FileFrontEnd) -> None:
    papers = share.get_directory_client("Papers")
    handle = front_end.open(share.share_name, REPORT, NONE)
    with refused(409, "SharingViolation"):
        papers.rename_directory("Documents")
    with refused(409, "SharingViolation"):
        share.get_directory_client("Papers/2024").delete_directory()
    front_end.close(share.share_name, handle)
    papers.rename_directory("Documents")
    assert share.get_file_client("Documents/2024/Report.txt").exists()


def exclusive_oplock(notify: CacheNotifier) -> CachingRequest:
    return CachingRequest(Caching.READ | Caching.WRITE, None, b"client", notify)


def test_caches_are_flushed(share: ShareClient, front_end: FileFrontEnd) -> None:
    file = share.get_file_client(REPORT)
    told: list[Caching] = []
    caching = exclusive_oplock(lambda _, state, __: told.append(state))
    grant = front_end.open(share.share_name, REPORT, R | W, caching=caching).grant
    assert grant is not None
    with refused(408, "ClientCacheFlushDelay"):
        file.get_file_properties(timeout=1)
    assert told == [Caching.READ]
    timer = threading.Timer(0.1, lambda: front_end.call(grant.acknowledge, Caching.READ))
    timer.start()
    file.get_file_properties()
    timer.join()
    file.upload_range(b"x", 0, 1)
    assert told == [Caching.READ, Caching.NONE]


def test_copies_wait_for_caches_as_long_as_their_timeout(
    share: ShareClient, front_end: FileFrontEnd
) -> None:
    cached, other = share.get_file_client(REPORT), share.get_file_client("other")
    other.create_file(1)
    caching = exclusive_oplock(lambda _, __, ___: None)
    front_end.open(share.share_name, REPORT, R | W, caching=caching)
    started = time.monotonic()
    with refused(400, "CannotVerifyCopySource"):
        other.start_copy_from_url(cached.url, timeout=1)
    with refused(408, "ClientCacheFlushDelay"):
        cached.start_copy_from_url(other.url, timeout=1)
    assert time.monotonic() - started < REST_WAIT_SECONDS_MAX


def test_a_deleted_share_closes_its_handles(
    files: ShareServiceClient, front_end: FileFrontEnd
) -> None:
    share = files.create_share(unique("share"))
    share.get_file_client("file").create_file(1)
    handle = front_end.open(share.share_name, "file", R, NONE)
    share.delete_share()
    assert not handle.is_open
    assert front_end.told[-1] is handle
    front_end.close_all(share.share_name)
