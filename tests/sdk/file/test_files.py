"""Files as a whole: create, properties, metadata and delete."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from azure.storage.fileshare import ContentSettings, ShareClient, ShareServiceClient

from tests.sdk.harness import ResponseRecorder, refused, with_headers
from tests.server import unique

TIB = 1 << 40
CREATED = "2020-02-29T01:02:03.1234567Z"
WRITTEN = "1999-12-31T23:59:59.9999999Z"
SETTINGS = ContentSettings(
    content_type="text/plain",
    content_encoding="br",
    content_language="fr",
    content_disposition="inline",
    cache_control="no-store",
    content_md5=bytearray(b"0123456789abcdef"),
)


def test_create_and_read_back(share: ShareClient) -> None:
    share.create_directory("Papers")
    file = share.get_file_client("Papers/Report.txt")
    answer = ResponseRecorder()
    file.create_file(
        1_000, content_settings=SETTINGS, metadata={"Colour": "red"}, raw_response_hook=answer
    )
    assert answer.status == 201
    created = answer.headers
    assert created["x-ms-request-server-encrypted"] == "true"
    assert created["x-ms-file-attributes"] == "Archive"
    assert created["content-length"] == "0"
    shown = file.get_file_properties(raw_response_hook=answer)
    assert answer.headers["x-ms-type"] == "File"
    assert answer.headers["x-ms-server-encrypted"] == "true"
    assert answer.headers["content-length"] == "1000"
    assert "accept-ranges" not in answer.headers
    assert (shown.size, shown.metadata) == (1_000, {"Colour": "red"})
    assert dict(shown.content_settings) == dict(SETTINGS)
    assert (shown.lease.state, shown.lease.status) == ("available", "unlocked")
    for name in ("creation-time", "last-write-time", "change-time", "id", "parent-id"):
        assert answer.headers[f"x-ms-file-{name}"] == created[f"x-ms-file-{name}"], name
    parent = share.get_directory_client("Papers").get_directory_properties()
    assert shown.parent_id == parent.file_id
    assert file.download_file().readall() == bytes(1_000)


def test_defaults(share: ShareClient) -> None:
    file = share.get_file_client("Report")
    file.create_file(0)
    shown = file.get_file_properties()
    assert shown.content_settings.content_type == "application/octet-stream"
    assert shown.content_settings.content_md5 is None
    assert shown.creation_time == shown.last_write_time == shown.change_time


def test_a_sparse_file_of_the_greatest_length(share: ShareClient) -> None:
    file = share.get_file_client("Report")
    file.create_file(4 * TIB)
    assert file.get_file_properties().size == 4 * TIB
    assert file.download_file(4 * TIB - 5, 5).readall() == bytes(5)
    with refused(400, "InvalidHeaderValue") as error:
        file.create_file(4 * TIB + 1)
    assert error.details["headername"] == "x-ms-content-length"
    assert error.details["headervalue"] == str(4 * TIB + 1)
    with refused(400, "InvalidHeaderValue"):
        file.resize_file(4 * TIB + 1)


def test_create_over_a_file(share: ShareClient) -> None:
    file = share.get_file_client("Report")
    file.upload_file(b"first", metadata={"Colour": "red"}, content_settings=SETTINGS)
    before = file.get_file_properties()
    file.create_file(3)
    after = file.get_file_properties()
    assert file.download_file().readall() == bytes(3)
    assert after.metadata == {}
    assert after.content_settings.content_type == "application/octet-stream"
    assert after.etag != before.etag


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("none", "Archive"),
        ("ReadOnly", "ReadOnly | Archive"),
        ("hidden|SYSTEM", "Hidden | System | Archive"),
        ("Archive|Temporary", "Archive | Temporary"),
        (
            "Offline|NotContentIndexed|NoScrubData",
            "Archive | Offline | NotContentIndexed | NoScrubData",
        ),
    ],
)
def test_attributes_of_a_new_file(share: ShareClient, sent: str, shown: str) -> None:
    file = share.get_file_client("Report")
    file.create_file(0, file_attributes=sent)
    assert file.get_file_properties().file_attributes == shown
    restored = share.get_file_client("Restored")
    restored.create_file(0, file_attributes=sent, file_property_semantics="Restore")
    without_archive = shown.replace(" | Archive", "").replace("Archive | ", "")
    if "archive" in sent.lower():
        without_archive = shown
    elif sent == "none":
        without_archive = "None"
    assert restored.get_file_properties().file_attributes == without_archive


def test_explicit_times(share: ShareClient) -> None:
    file = share.get_file_client("Report")
    answer = ResponseRecorder()
    file.create_file(
        5, file_creation_time=CREATED, file_last_write_time=WRITTEN, raw_response_hook=answer
    )
    assert answer.headers["x-ms-file-creation-time"] == CREATED
    assert answer.headers["x-ms-file-last-write-time"] == WRITTEN
    changed = answer.headers["x-ms-file-change-time"]
    file.set_http_headers(SETTINGS, raw_response_hook=answer)
    assert answer.headers["x-ms-file-creation-time"] == CREATED
    assert answer.headers["x-ms-file-last-write-time"] == WRITTEN
    assert answer.headers["x-ms-file-change-time"] > changed
    file.resize_file(9)
    assert file.get_file_properties().size == 9
    file.set_http_headers(
        SETTINGS, file_last_write_time="now", file_change_time=CREATED, raw_response_hook=answer
    )
    assert answer.headers["x-ms-file-last-write-time"] > changed
    assert answer.headers["x-ms-file-change-time"] == CREATED


def test_headers_that_are_absent_are_cleared(share: ShareClient) -> None:
    file = share.get_file_client("Report")
    file.create_file(5, content_settings=SETTINGS)
    file.set_http_headers(ContentSettings(content_language="de"))
    answer = ResponseRecorder()
    shown = file.get_file_properties(raw_response_hook=answer).content_settings
    assert shown.content_language == "de"
    absent = ("content-type", "content-encoding", "content-disposition", "cache-control")
    assert not {*absent, "content-md5"} & answer.headers.keys()
    file.set_http_headers(SETTINGS)
    file.resize_file(6)
    file.get_file_properties(raw_response_hook=answer)
    assert "content-type" not in answer.headers


def test_resize(share: ShareClient) -> None:
    file = share.get_file_client("Report")
    file.upload_file(b"0123456789")
    file.resize_file(4)
    assert file.download_file().readall() == b"0123"
    file.resize_file(6)
    assert file.download_file().readall() == b"0123\0\0"
    file.resize_file(0)
    assert file.get_file_properties().size == 0


def test_content_type_from_the_usual_header(share: ShareClient) -> None:
    file = share.get_file_client("Report")
    file.create_file(0, raw_request_hook=with_headers(Content_Type="application/xml"))
    assert file.get_file_properties().content_settings.content_type == "application/xml"


def test_metadata(share: ShareClient) -> None:
    file = share.get_file_client("Report")
    file.create_file(5)
    before = file.get_file_properties()
    file.set_file_metadata({"Shape": "round"})
    after = file.get_file_properties()
    assert after.metadata == {"Shape": "round"}
    assert (after.etag != before.etag, after.size) == (True, 5)
    assert after.last_write_time == before.last_write_time
    assert str(after.change_time) > str(before.change_time)
    with refused(400, "InvalidMetadata"):
        file.set_file_metadata({"1": "a"})


def test_delete(share: ShareClient) -> None:
    file = share.get_file_client("Report")
    file.create_file(5)
    answer = ResponseRecorder()
    file.delete_file(raw_response_hook=answer)
    assert answer.status == 202
    with refused(404, "ResourceNotFound"):
        file.delete_file()
    assert not file.exists()


def test_what_is_missing(files: ShareServiceClient, share: ShareClient) -> None:
    missing = share.get_file_client("missing")
    below = share.get_file_client("missing/below")
    nowhere = files.get_share_client(unique("missing")).get_file_client("Report")
    for client, code in (
        (missing, "ResourceNotFound"),
        (below, "ParentNotFound"),
        (nowhere, "ShareNotFound"),
    ):
        with refused(404, code):
            client.get_file_properties()
        with refused(404, code):
            client.set_file_metadata({})
        with refused(404, code):
            client.resize_file(1)
        with refused(404, code):
            client.delete_file()
        with refused(404, code):
            client.acquire_lease()
    with refused(404, "ParentNotFound"):
        below.create_file(1)
    with refused(404, "ShareNotFound"):
        nowhere.create_file(1)


def test_a_directory_is_not_a_file(share: ShareClient) -> None:
    share.create_directory("Papers")
    file = share.get_file_client("Papers")
    assert not file.exists()
    for read in (file.get_file_properties, file.download_file, lambda: list(file.list_ranges())):
        with refused(404, "ResourceNotFound"):
            read()
    for change in (
        lambda: file.create_file(5),
        file.delete_file,
        lambda: file.set_file_metadata({}),
        lambda: file.resize_file(1),
        file.acquire_lease,
    ):
        with refused(409, "ResourceTypeMismatch"):
            change()


def test_a_read_only_file(share: ShareClient) -> None:
    file = share.get_file_client("Report")
    file.create_file(5, file_attributes="ReadOnly")
    for change in (
        lambda: file.create_file(5),
        file.delete_file,
        lambda: file.set_file_metadata({}),
        lambda: file.resize_file(1),
        lambda: file.upload_range(b"12345", 0, 5),
    ):
        with refused(409, "ReadOnlyAttribute"):
            change()
    file.set_http_headers(SETTINGS, file_attributes="None")
    assert file.get_file_properties().file_attributes == "None"
    file.delete_file()


@pytest.mark.parametrize("validate", [None, "md5"])
def test_create_with_bytes(share: ShareClient, validate: Any) -> None:
    file = share.get_file_client("Report")
    answer = ResponseRecorder()
    file.create_file(8, data=b"abcde", validate_content=validate, raw_response_hook=answer)
    assert answer.status == 201
    assert file.download_file().readall() == b"abcde\0\0\0"
    with refused(400, "InvalidHeaderValue"):
        file.create_file(4, data=b"abcde")
    with refused(413, "RequestBodyTooLarge"):
        file.create_file(TIB, data=bytes((4 << 20) + 1))
    wrong = hashlib.md5(b"other", usedforsecurity=False).digest()
    with refused(400, "InvalidMd5"):
        file.create_file(8, data=b"abcde", headers={"Content-MD5": wrong.hex()})
    assert file.download_file().readall() == b"abcde\0\0\0"


def test_leases_are_shown_from_their_version_on(share: ShareClient) -> None:
    file = share.get_file_client("Report")
    file.create_file(5)
    answer = ResponseRecorder()
    for version, shown in (("2018-11-09", False), ("2019-02-02", True)):
        old = with_headers(x_ms_version=version)
        file.get_file_properties(raw_request_hook=old, raw_response_hook=answer)
        assert ("x-ms-lease-state" in answer.headers) is shown, version


def test_names_are_compared_without_case(share: ShareClient) -> None:
    share.create_directory("Papers").get_file_client("Réport").create_file(7)
    assert share.get_file_client("PAPERS/RÉPORT").get_file_properties().size == 7
    share.get_file_client("papers/réPORT").create_file(8)
    listed: list[Any] = list(share.get_directory_client("pApers").list_directories_and_files())
    assert [(entry.name, entry.size) for entry in listed] == [("réPORT", 8)]
