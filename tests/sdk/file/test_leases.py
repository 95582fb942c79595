"""Leases of files, which are infinite."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from azure.storage.fileshare import ContentSettings, ShareClient, ShareFileClient, ShareLeaseClient

from tests.sdk.harness import ResponseRecorder, refused, with_headers

MISSING = "LeaseIdMissing"
MISMATCH = "LeaseIdMismatchWithFileOperation"
NOT_PRESENT = "LeaseNotPresentWithFileOperation"
OTHER = str(uuid.uuid4())

WRITES: dict[str, Callable[..., object]] = {
    "create": lambda file, **options: file.create_file(9, **options),
    "properties": lambda file, **options: file.set_http_headers(ContentSettings(), **options),
    "resize": lambda file, **options: file.resize_file(4, **options),
    "metadata": lambda file, **options: file.set_file_metadata({"a": "b"}, **options),
    "range": lambda file, **options: file.upload_range(b"four", 0, 4, **options),
    "delete": lambda file, **options: file.delete_file(**options),
}
READS: dict[str, Callable[..., object]] = {
    "properties": lambda file, **options: file.get_file_properties(**options),
    "download": lambda file, **options: file.download_file(**options).readall(),
}


@pytest.fixture
def file(share: ShareClient) -> ShareFileClient:
    made: ShareFileClient = share.get_file_client("Report")
    made.upload_file(b"12345")
    return made


def _shown(file: ShareFileClient) -> tuple[str, str, str | None]:
    lease = file.get_file_properties().lease
    return lease.state, lease.status, lease.duration


def test_acquire_change_break_and_release(file: ShareFileClient) -> None:
    before = file.get_file_properties()
    answer = ResponseRecorder()
    proposed = str(uuid.uuid4())
    lease = file.acquire_lease(proposed, raw_response_hook=answer)
    assert (answer.status, answer.headers["x-ms-lease-id"]) == (201, proposed)
    assert answer.headers["etag"] == before.etag
    assert _shown(file) == ("leased", "locked", "infinite")
    lease.change(OTHER, raw_response_hook=answer)
    assert (answer.status, answer.headers["x-ms-lease-id"]) == (200, OTHER)
    lease.break_lease(raw_response_hook=answer)
    assert (answer.status, answer.headers["x-ms-lease-time"]) == (202, "0")
    assert _shown(file) == ("broken", "unlocked", None)
    lease.release(raw_response_hook=answer)
    assert (answer.status, answer.headers["content-length"]) == (200, "0")
    assert _shown(file) == ("available", "unlocked", None)
    after = file.get_file_properties()
    assert (after.etag, after.change_time) == (before.etag, before.change_time)


def test_lease_actions_that_are_refused(file: ShareFileClient) -> None:
    holder, other = ShareLeaseClient(file), ShareLeaseClient(file, OTHER)
    with refused(409, "LeaseNotPresentWithLeaseOperation"):
        holder.break_lease()
    with refused(409, "LeaseNotPresentWithLeaseOperation"):
        holder.change(OTHER)
    with refused(409, "LeaseIdMismatchWithLeaseOperation"):
        holder.release()
    holder.acquire()
    holder.acquire()
    with refused(409, "LeaseAlreadyPresent"):
        other.acquire()
    with refused(409, "LeaseIdMismatchWithLeaseOperation"):
        other.release()
    with refused(409, "LeaseIdMismatchWithLeaseOperation"):
        other.change(str(uuid.uuid4()))
    holder.break_lease()
    other.acquire()


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({"x-ms-lease-duration": "15"}, "x-ms-lease-duration"),
        ({"x-ms-lease-duration": "0"}, "x-ms-lease-duration"),
        ({"x-ms-lease-action": "renew"}, "x-ms-lease-action"),
        ({"x-ms-lease-action": "keep"}, "x-ms-lease-action"),
        ({"x-ms-proposed-lease-id": "not a guid"}, "x-ms-proposed-lease-id"),
    ],
)
def test_lease_headers_that_are_invalid(
    file: ShareFileClient, headers: dict[str, str], name: str
) -> None:
    sent = {"x-ms-lease-id": OTHER, **headers}
    hook = with_headers(**{key.replace("-", "_"): value for key, value in sent.items()})
    with refused(400, "InvalidHeaderValue") as error:
        file.acquire_lease(raw_request_hook=hook)
    assert error.details["headername"] == name
    assert _shown(file)[0] == "available"


@pytest.mark.parametrize("name", WRITES)
def test_writes_need_the_lease(file: ShareFileClient, name: str) -> None:
    write = WRITES[name]
    with refused(412, NOT_PRESENT):
        write(file, lease=OTHER)
    lease = file.acquire_lease()
    with refused(412, MISSING):
        write(file)
    with refused(412, MISMATCH):
        write(file, lease=OTHER)
    assert file.download_file().readall() == b"12345"
    write(file, lease=lease)
    if name != "delete":
        assert _shown(file)[0] == "leased"


@pytest.mark.parametrize("name", WRITES)
def test_writes_end_a_broken_lease(file: ShareFileClient, name: str) -> None:
    lease = file.acquire_lease()
    lease.break_lease()
    with refused(412, "LeaseLost"):
        WRITES[name](file, lease=lease)
    WRITES[name](file)
    if name != "delete":
        assert _shown(file)[0] == "available"


@pytest.mark.parametrize("name", READS)
def test_reads_do_not_need_the_lease(file: ShareFileClient, name: str) -> None:
    read = READS[name]
    with refused(412, NOT_PRESENT):
        read(file, lease=OTHER)
    lease = file.acquire_lease()
    read(file)
    read(file, lease=lease)
    with refused(412, MISMATCH):
        read(file, lease=OTHER)


def test_a_new_file_has_no_lease_to_name(share: ShareClient) -> None:
    file = share.get_file_client("new")
    with refused(412, NOT_PRESENT):
        file.create_file(5, lease=OTHER)
    assert not file.exists()


def test_snapshots_show_no_leases(share: ShareClient, file: ShareFileClient) -> None:
    file.acquire_lease()
    snapshot = share.create_snapshot()["snapshot"]
    url = share.url.rsplit("/", 1)[0]
    old = ShareFileClient(
        url, share.share_name, "Report", snapshot=snapshot, credential=share.credential
    )
    assert old.get_file_properties().lease.state is None
