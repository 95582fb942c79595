"""Renames of directories and files."""

from __future__ import annotations

import uuid

import pytest
from azure.storage.fileshare import ContentSettings, ShareClient, ShareServiceClient

from tests.sdk.file.clients import file_token
from tests.sdk.harness import ResponseRecorder, refused, with_headers
from tests.server import ACCOUNT, unique

CREATED = "2020-02-29T01:02:03.1234567Z"
WRITTEN = "1999-12-31T23:59:59.9999999Z"


def _names(share: ShareClient, path: str = "") -> list[str]:
    directory = share.get_directory_client(path)
    return sorted(entry.name for entry in directory.list_directories_and_files())


def test_rename_a_file(share: ShareClient) -> None:
    share.create_directory("from")
    share.create_directory("to")
    file = share.get_file_client("from/Report")
    settings = ContentSettings(content_type="text/plain", content_language="fr")
    file.upload_file(b"12345", metadata={"Colour": "red"}, content_settings=settings)
    before = file.get_file_properties()
    answer = ResponseRecorder()
    renamed = file.rename_file("to/Letter", raw_response_hook=answer)
    assert answer.status == 200
    assert answer.headers["x-ms-request-server-encrypted"] == "true"
    after = renamed.get_file_properties()
    assert renamed.download_file().readall() == b"12345"
    assert (after.metadata, after.file_id) == (before.metadata, before.file_id)
    assert dict(after.content_settings) == dict(before.content_settings)
    assert (after.creation_time, after.last_write_time) == (
        before.creation_time,
        before.last_write_time,
    )
    assert str(after.change_time) > str(before.change_time)
    assert after.etag != before.etag
    assert after.parent_id == share.get_directory_client("to").get_directory_properties().file_id
    assert (_names(share, "from"), _names(share, "to")) == ([], ["Letter"])
    with refused(404, "ResourceNotFound"):
        file.rename_file("to/other")


def test_rename_with_other_properties(share: ShareClient) -> None:
    file = share.get_file_client("Report")
    file.upload_file(b"12345", metadata={"Colour": "red"})
    answer = ResponseRecorder()
    renamed = file.rename_file(
        "Letter",
        file_attributes="ReadOnly|Archive",
        file_creation_time=CREATED,
        file_last_write_time=WRITTEN,
        file_change_time=CREATED,
        metadata={"Shape": "round"},
        content_type="text/plain",
        raw_response_hook=answer,
    )
    assert answer.headers["x-ms-file-attributes"] == "ReadOnly | Archive"
    assert answer.headers["x-ms-file-creation-time"] == CREATED
    assert answer.headers["x-ms-file-last-write-time"] == WRITTEN
    assert answer.headers["x-ms-file-change-time"] == CREATED
    shown = renamed.get_file_properties()
    assert shown.metadata == {"Shape": "round"}
    assert shown.content_settings.content_type == "text/plain"


def test_rename_a_directory_with_what_is_in_it(share: ShareClient) -> None:
    outer = share.create_directory("outer")
    outer.create_subdirectory("inner").get_file_client("Report").upload_file(b"12345")
    share.create_directory("other")
    renamed = outer.rename_directory("other/moved", metadata={"Shape": "round"})
    assert renamed.get_directory_properties().metadata == {"Shape": "round"}
    moved = share.get_file_client("other/moved/inner/Report")
    assert moved.download_file().readall() == b"12345"
    assert _names(share) == ["other"]
    with refused(404, "ParentNotFound"):
        share.get_file_client("outer/inner/Report").get_file_properties()


def test_change_the_case_of_a_name(share: ShareClient) -> None:
    share.get_file_client("report").upload_file(b"12345")
    share.get_file_client("report").rename_file("Report")
    assert _names(share) == ["Report"]


def test_over_a_file(share: ShareClient) -> None:
    source, target = share.get_file_client("source"), share.get_file_client("target")
    source.upload_file(b"source")
    target.upload_file(b"target")
    with refused(409, "ResourceAlreadyExists"):
        source.rename_file("target")
    with refused(409, "ResourceAlreadyExists"):
        source.rename_file("target", overwrite=False)
    source.rename_file("target", overwrite=True)
    assert target.download_file().readall() == b"source"
    assert _names(share) == ["target"]


def test_over_a_read_only_file(share: ShareClient) -> None:
    source, target = share.get_file_client("source"), share.get_file_client("target")
    source.upload_file(b"source")
    target.create_file(3, file_attributes="ReadOnly")
    with refused(409, "ReadOnlyAttribute"):
        source.rename_file("target", overwrite=True)
    source.rename_file("target", overwrite=True, ignore_read_only=True)
    assert target.download_file().readall() == b"source"


def test_a_directory_over_a_file(share: ShareClient) -> None:
    share.create_directory("source").create_subdirectory("inner")
    share.get_file_client("target").create_file(3)
    source = share.get_directory_client("source")
    with refused(409, "ResourceAlreadyExists"):
        source.rename_directory("target")
    source.rename_directory("target", overwrite=True)
    assert _names(share, "target") == ["inner"]


def test_over_a_directory(share: ShareClient) -> None:
    share.create_directory("target")
    share.get_file_client("file").create_file(3)
    share.create_directory("source")
    for overwrite in (False, True):
        with refused(409, "ResourceAlreadyExists"):
            share.get_file_client("file").rename_file("target", overwrite=overwrite)
        with refused(409, "ResourceAlreadyExists"):
            share.get_directory_client("source").rename_directory("target", overwrite=overwrite)
    assert _names(share) == ["file", "source", "target"]


def test_leases_of_source_and_destination(share: ShareClient) -> None:
    source, target = share.get_file_client("source"), share.get_file_client("target")
    source.upload_file(b"source")
    target.upload_file(b"target")
    held, replaced = source.acquire_lease(), target.acquire_lease()
    other = str(uuid.uuid4())
    for options, code in (
        ({"destination_lease": replaced}, "LeaseIdMissing"),
        ({"source_lease": held}, "LeaseIdMissing"),
        (
            {"source_lease": other, "destination_lease": replaced},
            "LeaseIdMismatchWithFileOperation",
        ),
        ({"source_lease": held, "destination_lease": other}, "LeaseIdMismatchWithFileOperation"),
    ):
        with refused(412, code):
            source.rename_file("target", overwrite=True, **options)
    source.rename_file("target", overwrite=True, source_lease=held, destination_lease=replaced)
    assert target.download_file().readall() == b"source"
    assert target.get_file_properties().lease.state == "leased"


def test_what_is_missing(share: ShareClient) -> None:
    share.get_file_client("Report").create_file(3)
    share.create_directory("Papers")
    with refused(404, "ResourceNotFound"):
        share.get_directory_client("missing").rename_directory("other")
    with refused(404, "ParentNotFound"):
        share.get_file_client("missing/Report").rename_file("other")
    with refused(404, "ParentNotFound"):
        share.get_file_client("Report").rename_file("missing/Report")
    with refused(409, "ResourceTypeMismatch"):
        share.get_file_client("Papers").rename_file("other")
    with refused(409, "ResourceTypeMismatch"):
        share.get_directory_client("Report").rename_directory("other")


def test_a_directory_cannot_move_into_itself(share: ShareClient) -> None:
    outer = share.create_directory("outer")
    outer.create_subdirectory("inner")
    for path in ("outer/moved", "outer/inner/moved"):
        with refused(400, "InvalidInput"):
            outer.rename_directory(path)
    assert _names(share, "outer") == ["inner"]


def test_trailing_dots_of_source_and_destination(share: ShareClient) -> None:
    url = share.url.rsplit("/", 1)[0]
    dotted = ShareClient(
        url,
        share.share_name,
        credential=share.credential,
        allow_trailing_dot=True,
        allow_source_trailing_dot=True,
    )
    dotted.get_file_client("one.").create_file(1)
    dotted.get_file_client("one.").rename_file("two.")
    assert _names(dotted) == ["two."]
    with refused(404, "ResourceNotFound"):
        share.get_file_client("two.").rename_file("three")
    dotted.get_file_client("two.").rename_file("three.")
    assert _names(dotted) == ["three."]


@pytest.mark.parametrize(
    "source",
    [
        "Report",
        "/{account}/{share}/Report",
        "ftp://127.0.0.1/{account}/{share}/Report",
        "http://127.0.0.1/{account}/other/Report",
        "http://127.0.0.1/second/{share}/Report",
        "http://other.file.core.windows.net/{share}/Report",
        "http://127.0.0.1/{account}/{share}/Report?sharesnapshot=2020-01-01T00:00:00.0000000Z",
    ],
)
def test_sources_that_are_not_in_the_share(share: ShareClient, source: str) -> None:
    share.get_file_client("Report").create_file(3)
    written = source.format(account=ACCOUNT, share=share.share_name)
    hook = with_headers(x_ms_file_rename_source=written)
    with refused(400, "InvalidHeaderValue") as error:
        share.get_file_client("Report").rename_file("other", raw_request_hook=hook)
    assert error.details["headername"] == "x-ms-file-rename-source"
    assert _names(share) == ["Report"]


def test_a_source_with_its_own_token(share: ShareClient) -> None:
    share.get_file_client("Report").upload_file(b"12345")
    url = share.get_file_client("Report").url
    for permission, status in (("r", 403), ("rw", 200)):
        token = file_token(share, "Report", permission=permission)
        hook = with_headers(x_ms_file_rename_source=f"{url}?{token}")
        if status == 403:
            with refused(403, "AuthorizationPermissionMismatch"):
                share.get_file_client("Report").rename_file("Letter", raw_request_hook=hook)
        else:
            share.get_file_client("Report").rename_file("Letter", raw_request_hook=hook)
    assert _names(share) == ["Letter"]


def test_in_a_missing_share(files: ShareServiceClient) -> None:
    missing = files.get_share_client(unique("missing"))
    with refused(404, "ShareNotFound"):
        missing.get_file_client("one").rename_file("two")
    with refused(404, "ShareNotFound"):
        missing.get_directory_client("one").rename_directory("two")
