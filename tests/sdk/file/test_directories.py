"""Directories: create, properties, metadata and delete."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from azure.storage.fileshare import NTFSAttributes, ShareClient, ShareServiceClient

from tests.sdk.harness import ResponseRecorder, refused, with_headers
from tests.server import unique

CREATED = "2020-02-29T01:02:03.1234567Z"
WRITTEN = "1999-12-31T23:59:59.9999999Z"
CHANGED = "1970-01-01T00:00:00.0000000Z"
BEFORE_1970 = "1601-01-01T00:00:00.0000001Z"


def test_create_and_read_back(share: ShareClient) -> None:
    answer = ResponseRecorder()
    directory = share.get_directory_client("Papers")
    directory.create_directory(metadata={"Colour": "red"}, raw_response_hook=answer)
    assert answer.status == 201
    assert answer.headers["x-ms-request-server-encrypted"] == "true"
    assert answer.headers["x-ms-file-attributes"] == "Directory"
    assert answer.headers["x-ms-file-parent-id"] == "0"
    created = answer.headers
    directory.get_directory_properties(raw_response_hook=answer)
    assert answer.status == 200
    assert answer.headers["x-ms-server-encrypted"] == "true"
    assert answer.headers["x-ms-meta-colour"] == "red"
    for name in ("creation-time", "last-write-time", "change-time", "permission-key", "id"):
        assert answer.headers[f"x-ms-file-{name}"] == created[f"x-ms-file-{name}"], name
    assert answer.headers["etag"] == created["etag"]
    assert len({created[f"x-ms-file-{name}-time"] for name in ("creation", "change")}) == 1
    assert "x-ms-type" not in answer.headers
    with refused(409, "ResourceAlreadyExists"):
        directory.create_directory()
    with refused(409, "ResourceAlreadyExists"):
        share.create_directory("PAPERS")


def test_the_root_directory(share: ShareClient) -> None:
    root = share.get_directory_client("")
    answer = ResponseRecorder()
    root.get_directory_properties(raw_response_hook=answer)
    assert answer.headers["x-ms-file-id"] == answer.headers["x-ms-file-parent-id"] == "0"
    root.set_directory_metadata({"Colour": "blue"})
    assert root.get_directory_properties().metadata == {"Colour": "blue"}
    with refused(409, "ResourceAlreadyExists"):
        root.create_directory()
    with refused(400, "InvalidInput"):
        root.delete_directory()


def test_explicit_times_and_attributes(share: ShareClient) -> None:
    directory = share.get_directory_client("old")
    directory.create_directory(
        file_attributes="ReadOnly|Directory",
        file_creation_time=CREATED,
        file_last_write_time=WRITTEN,
        file_change_time=CHANGED,
    )
    answer = ResponseRecorder()
    directory.get_directory_properties(raw_response_hook=answer)
    assert answer.headers["x-ms-file-attributes"] == "ReadOnly | Directory"
    assert _times(answer) == (CREATED, WRITTEN, CHANGED)
    directory.set_http_headers(file_creation_time=BEFORE_1970, raw_response_hook=answer)
    created, written, changed = _times(answer)
    assert (created, written) == (BEFORE_1970, WRITTEN)
    assert changed > "2020"
    assert answer.headers["x-ms-file-attributes"] == "ReadOnly | Directory"
    # The start of 1970 is a time like any other.
    directory.set_http_headers(
        file_attributes=NTFSAttributes(hidden=True),
        file_last_write_time=CHANGED,
        file_change_time=datetime(2021, 1, 2, tzinfo=UTC),
        raw_response_hook=answer,
    )
    assert _times(answer) == (BEFORE_1970, CHANGED, "2021-01-02T00:00:00.0000000Z")
    assert answer.headers["x-ms-file-attributes"] == "Hidden | Directory"
    directory.set_http_headers(file_attributes="None", raw_response_hook=answer)
    assert answer.headers["x-ms-file-attributes"] == "Directory"


def _times(answer: ResponseRecorder) -> tuple[str, ...]:
    names = ("creation", "last-write", "change")
    return tuple(answer.headers[f"x-ms-file-{name}-time"] for name in names)


def test_metadata(share: ShareClient) -> None:
    directory = share.create_directory("Papers")
    before = directory.get_directory_properties()
    answer = ResponseRecorder()
    directory.set_directory_metadata({"Shape": "round"}, raw_response_hook=answer)
    assert answer.status == 200
    assert answer.headers["x-ms-request-server-encrypted"] == "true"
    after = directory.get_directory_properties()
    assert after.metadata == {"Shape": "round"}
    assert after.etag == answer.headers["etag"] != before.etag
    assert after.last_write_time == before.last_write_time
    assert str(after.change_time) > str(before.change_time)
    directory.set_directory_metadata({})
    assert directory.get_directory_properties().metadata == {}


def test_delete(share: ShareClient) -> None:
    outer = share.create_directory("outer")
    inner = outer.create_subdirectory("inner")
    with refused(409, "DirectoryNotEmpty"):
        outer.delete_directory()
    answer = ResponseRecorder()
    inner.delete_directory(raw_response_hook=answer)
    assert answer.status == 202
    with refused(404, "ResourceNotFound"):
        inner.delete_directory()
    outer.delete_directory()
    with refused(404, "ParentNotFound"):
        inner.delete_directory()
    assert not outer.exists()


def test_what_is_missing(files: ShareServiceClient, share: ShareClient) -> None:
    missing = share.get_directory_client("missing")
    below = share.get_directory_client("missing/below")
    for client, code in ((missing, "ResourceNotFound"), (below, "ParentNotFound")):
        with refused(404, code):
            client.get_directory_properties()
        with refused(404, code):
            client.set_directory_metadata({})
        with refused(404, code):
            client.set_http_headers()
        with refused(404, code):
            client.delete_directory()
        with refused(404, code):
            list(client.list_directories_and_files())
    with refused(404, "ParentNotFound"):
        below.create_directory()
    nowhere = files.get_share_client(unique("missing")).get_directory_client("Papers")
    with refused(404, "ShareNotFound"):
        nowhere.create_directory()
    with refused(404, "ShareNotFound"):
        nowhere.get_directory_properties()


def test_a_file_is_not_a_directory(share: ShareClient) -> None:
    share.get_file_client("Report").create_file(5)
    directory = share.get_directory_client("Report")
    with refused(409, "ResourceAlreadyExists"):
        directory.create_directory()
    with refused(404, "ResourceNotFound"):
        directory.get_directory_properties()
    with refused(404, "ResourceNotFound"):
        list(directory.list_directories_and_files())
    with refused(409, "ResourceTypeMismatch"):
        directory.delete_directory()
    with refused(409, "ResourceTypeMismatch"):
        directory.set_directory_metadata({})
    with refused(404, "ParentNotFound"):
        directory.create_subdirectory("below")
    with refused(404, "ParentNotFound"):
        directory.get_file_client("below").get_file_properties()


def test_directories_in_snapshots(share: ShareClient) -> None:
    share.create_directory("Papers").set_directory_metadata({"Colour": "red"})
    snapshot = share.create_snapshot()["snapshot"]
    share.get_directory_client("Papers").set_directory_metadata({"Colour": "blue"})
    share.create_directory("later")
    directory = _in_snapshot(share, snapshot).get_directory_client("Papers")
    assert directory.get_directory_properties().metadata == {"Colour": "red"}
    with refused(404, "ResourceNotFound"):
        _in_snapshot(share, snapshot).get_directory_client("later").get_directory_properties()
    with refused(404, "ShareSnapshotNotFound"):
        other = "2020-01-01T00:00:00.0000000Z"
        _in_snapshot(share, other).get_directory_client("Papers").get_directory_properties()


def _in_snapshot(share: ShareClient, snapshot: str) -> ShareClient:
    url = share.url.rsplit("/", 1)[0]
    return ShareClient(url, share.share_name, snapshot=snapshot, credential=share.credential)


@pytest.mark.parametrize("version", ["2019-02-02", "2021-04-10"])
def test_properties_that_old_versions_require(share: ShareClient, version: str) -> None:
    directory = share.get_directory_client("Papers")
    old = with_headers(x_ms_version=version)
    for name in ("attributes", "creation-time", "last-write-time", "permission"):
        sent = {
            "x-ms-file-attributes": "none",
            "x-ms-file-creation-time": "now",
            "x-ms-file-last-write-time": "now",
            "x-ms-file-permission": "inherit",
        }
        del sent[f"x-ms-file-{name}"]
        with refused(400, "MissingRequiredHeader") as error:
            directory.create_directory(headers=sent, raw_request_hook=old)
        assert error.details["headername"] == f"x-ms-file-{name}"
    directory.create_directory(raw_request_hook=with_headers(x_ms_version="2018-11-09"))
