"""Page ranges, and differences since a snapshot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.storage.blob import BlobClient, ContainerClient

from tests.sdk.harness import ResponseRecorder, refused, with_headers

PAGE, TIB = 512, 1024**4
PAGES = 32


@pytest.fixture
def disk(container: ContainerClient) -> BlobClient:
    made = container.get_blob_client("disk")
    made.create_page_blob(PAGES * PAGE)
    return made


def write(blob: BlobClient, first: int, count: int = 1) -> None:
    blob.upload_page(b"x" * count * PAGE, first * PAGE, count * PAGE)


def listed(blob: BlobClient, **asked: Any) -> list[Any]:
    """Returns inclusive page numbers: written ranges as pairs, cleared ranges with a mark."""
    found = []
    for result in blob.list_page_ranges(**asked):
        assert result.start is not None
        assert result.end is not None
        pages = result.start // PAGE, result.end // PAGE
        assert (result.start % PAGE, result.end % PAGE) == (0, PAGE - 1)
        found.append((*pages, "cleared") if result.cleared else pages)
    return found


def snapshot_of(blob: BlobClient) -> str:
    return str(blob.create_snapshot()["snapshot"])


# Page ranges


def test_written_pages(disk: BlobClient) -> None:
    assert listed(disk) == []
    write(disk, 1, 2)
    write(disk, 3)
    write(disk, 8)
    answer = ResponseRecorder()
    assert listed(disk, raw_response_hook=answer) == [(1, 3), (8, 8)]
    assert answer.headers["x-ms-blob-content-length"] == str(PAGES * PAGE)
    assert answer.headers["etag"] == disk.get_blob_properties().etag
    assert answer.headers["content-type"] == "application/xml"
    disk.clear_page(2 * PAGE, PAGE)
    assert listed(disk) == [(1, 1), (3, 3), (8, 8)]


def test_pages_of_ranges(disk: BlobClient) -> None:
    for first in range(0, PAGES, 3):
        write(disk, first)
    expected = [(first, first) for first in range(0, PAGES, 3)]
    for each in (1, 2, 5, 11, 12, 5000):
        parts = [list(part) for part in disk.list_page_ranges(results_per_page=each).by_page()]
        sizes = [len(part) for part in parts]
        assert sum(sizes) == len(expected)
        assert all(size == each for size in sizes[:-1])
        assert listed(disk, results_per_page=each) == expected
    assert listed(disk) == expected


@pytest.mark.parametrize("count", ["0", "-1", "x", "9" * 30])
def test_invalid_counts(disk: BlobClient, count: str) -> None:
    def change(request: Any) -> None:
        sent = request.http_request
        sent.url = sent.url.replace("maxresults=7", f"maxresults={count}")

    with refused(400, "OutOfRangeQueryParameterValue"):
        listed(disk, results_per_page=7, raw_request_hook=change)


@pytest.mark.parametrize("marker", ["x", "-1", "9" * 30])
def test_invalid_markers(disk: BlobClient, marker: str) -> None:
    with refused(400, "OutOfRangeInput"):
        list(next(disk.list_page_ranges(results_per_page=1).by_page(marker)))


def test_versions_before_paging(disk: BlobClient) -> None:
    for first in range(0, PAGES, 3):
        write(disk, first)
    old = with_headers(x_ms_version="2019-12-12")
    found = list(disk.list_page_ranges(results_per_page=2, raw_request_hook=old))
    assert len(found) == 11


def test_ranges_of_a_range(disk: BlobClient) -> None:
    write(disk, 1, 5)
    write(disk, 10)
    assert listed(disk, offset=0, length=PAGE) == []
    assert listed(disk, offset=2 * PAGE, length=2 * PAGE) == [(2, 3)]
    assert listed(disk, offset=4 * PAGE, length=100 * PAGE) == [(4, 5), (10, 10)]
    assert listed(disk, offset=0, length=11 * PAGE, results_per_page=1) == [(1, 5), (10, 10)]
    with refused(416, "InvalidRange"):
        listed(disk, offset=PAGES * PAGE, length=PAGE)


def test_ranges_of_the_largest_blob(container: ContainerClient) -> None:
    blob = container.get_blob_client("disk")
    blob.create_page_blob(8 * TIB)
    last = 8 * TIB // PAGE - 1
    write(blob, 0)
    write(blob, last)
    assert listed(blob) == [(0, 0), (last, last)]
    assert listed(blob, results_per_page=1) == [(0, 0), (last, last)]


def test_ranges_of_a_snapshot(disk: BlobClient, container: ContainerClient) -> None:
    write(disk, 1)
    kept = container.get_blob_client("disk", snapshot=snapshot_of(disk))
    write(disk, 2)
    disk.clear_page(PAGE, PAGE)
    assert listed(kept) == [(1, 1)]
    assert listed(disk) == [(2, 2)]


def test_conditions_and_leases(disk: BlobClient) -> None:
    write(disk, 1)
    etag = disk.get_blob_properties().etag
    matching = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
    assert listed(disk, **matching) == [(1, 1)]
    write(disk, 3)
    with refused(412, "ConditionNotMet"):
        listed(disk, **matching)
    with refused(412, "ConditionNotMet"):
        listed(disk, if_unmodified_since=datetime.now(UTC) - timedelta(hours=1))
    lease = disk.acquire_lease()
    assert listed(disk) == listed(disk, lease=lease) == [(1, 1), (3, 3)]
    released = lease.id
    lease.release()
    with refused(412, "LeaseNotPresentWithBlobOperation"):
        listed(disk, lease=released)


# Differences


def test_changes_since_a_snapshot(disk: BlobClient, container: ContainerClient) -> None:
    write(disk, 0, 6)
    first = snapshot_of(disk)
    assert listed(disk, previous_snapshot=first) == []
    write(disk, 1)
    disk.clear_page(3 * PAGE, 2 * PAGE)
    second = snapshot_of(disk)
    write(disk, 20, 2)
    since_first = [(1, 1), (3, 4, "cleared"), (20, 21)]
    assert listed(disk, previous_snapshot=first) == since_first
    assert listed(disk, previous_snapshot=first, results_per_page=1) == since_first
    assert listed(disk, previous_snapshot=second) == [(20, 21)]
    kept = container.get_blob_client("disk", snapshot=second)
    assert listed(kept, previous_snapshot=first) == since_first[:2]
    with refused(400, "PreviousSnapshotCannotBeNewer"):
        listed(container.get_blob_client("disk", snapshot=first), previous_snapshot=second)


def test_pages_written_and_cleared_are_listed_as_cleared(disk: BlobClient) -> None:
    first = snapshot_of(disk)
    write(disk, 0, 3)
    second = snapshot_of(disk)
    disk.clear_page(PAGE, PAGE)
    assert listed(disk, previous_snapshot=first) == [(0, 0), (1, 1, "cleared"), (2, 2)]
    assert listed(disk, previous_snapshot=second) == [(1, 1, "cleared")]


def test_snapshots_that_cannot_be_compared(disk: BlobClient) -> None:
    write(disk, 0)
    first = snapshot_of(disk)
    with refused(409, "PreviousSnapshotNotFound"):
        listed(disk, previous_snapshot="2020-01-01T00:00:00.0000000Z")
    with refused(400, "InvalidQueryParameterValue"):
        listed(disk, previous_snapshot="yesterday")
    disk.create_page_blob(PAGES * PAGE)
    with refused(409, "BlobOverwritten"):
        listed(disk, previous_snapshot=first)


def test_differences_by_the_url_of_a_snapshot(disk: BlobClient, container: ContainerClient) -> None:
    write(disk, 0)
    first = snapshot_of(disk)
    write(disk, 2)
    address = container.get_blob_client("disk", snapshot=first).url
    written, cleared = disk.get_page_range_diff_for_managed_disk(address)
    assert ([result["start"] for result in written], cleared) == ([2 * PAGE], [])
    other = container.get_blob_client("other", snapshot=first).url
    with refused(409, "PreviousSnapshotOperationNotSupported"):
        disk.get_page_range_diff_for_managed_disk(other)
    for wrong in (disk.url, "nonsense", "http://[", f"{disk.url}?snapshot=never"):
        with refused(400, "InvalidHeaderValue"):
            disk.get_page_range_diff_for_managed_disk(wrong)
