"""Symbolic and hard links, and the owners of entries, in NFS shares."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from urllib.parse import quote, unquote

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.fileshare import (
    ContentSettings,
    ShareClient,
    ShareLeaseClient,
    ShareServiceClient,
)

from tests.sdk.file.test_depth import make_longest_path
from tests.sdk.harness import ResponseRecorder, refused, with_headers
from tests.server import unique


@pytest.fixture
def nfs(files: ShareServiceClient) -> Iterator[ShareClient]:
    created = files.create_share(unique("nfs"), protocols="NFS")
    yield created
    with contextlib.suppress(ResourceNotFoundError):
        created.delete_share(delete_snapshots=True)


def test_a_hard_link_to_the_longest_path(nfs: ShareClient) -> None:
    path = make_longest_path(nfs)
    link = nfs.get_file_client("link")
    link.create_hardlink(quote(path))
    assert link.download_file().readall() == b"bytes"


def test_a_symbolic_link(nfs: ShareClient) -> None:
    directory = nfs.create_directory("d")
    link = directory.get_file_client("link")
    answer = ResponseRecorder()
    link.create_symlink(
        quote("../é %/target"),
        owner="345",
        group="123",
        # The client sends the argument `metadata` as a header that does not exist.
        raw_request_hook=with_headers(x_ms_meta_Key="value"),
        raw_response_hook=answer,
    )
    assert answer.status == 201
    assert answer.headers["x-ms-file-file-type"] == "SymLink"
    assert answer.headers["x-ms-mode"] == "0777"
    assert (answer.headers["x-ms-owner"], answer.headers["x-ms-group"]) == ("345", "123")
    assert "x-ms-file-attributes" not in answer.headers
    found = link.get_symlink(raw_response_hook=answer)
    assert answer.status == 200
    assert unquote(found["link_text"]) == "../é %/target"
    assert found["etag"] == link.get_file_properties().etag
    assert link.get_file_properties().metadata == {"Key": "value"}
    link.get_file_properties(raw_response_hook=answer)
    assert answer.headers["x-ms-file-file-type"] == "SymLink"
    assert [each.name for each in directory.list_directories_and_files()] == ["link"]
    with refused(409, "ResourceAlreadyExists"):
        link.create_symlink("other")
    with refused(409, "ResourceTypeMismatch"):
        link.download_file()
    with refused(409, "ResourceTypeMismatch"):
        nfs.get_file_client("hard").create_hardlink("d/link")
    link.delete_file()
    with refused(404, "ResourceNotFound"):
        link.get_symlink()
    with refused(404, "ParentNotFound"):
        nfs.get_file_client("nowhere/link").create_symlink("x")
    with refused(404, "ParentNotFound"):
        nfs.get_file_client("nowhere/link").get_symlink()


def test_the_text_of_a_symbolic_link_has_a_limit(nfs: ShareClient) -> None:
    nfs.get_file_client("long").create_symlink("x" * 2_048)
    with refused(400, "InvalidHeaderValue"):
        nfs.get_file_client("longer").create_symlink("x" * 2_049)
    with refused(400, "InvalidHeaderValue"):
        nfs.get_file_client("bytes").create_symlink("%ff")


def test_a_hard_link(nfs: ShareClient) -> None:
    directory = nfs.create_directory("d e")
    file = directory.upload_file("f", b"0123456789")
    links = [nfs.get_file_client(name) for name in ("one", "two", "three")]
    targets = ("d e/f", "/d%20e/f", file.url)
    for count, (link, target) in enumerate(zip(links, targets, strict=True), 2):
        created = link.create_hardlink(target)
        assert created["link_count"] == count
        assert created["file_file_type"] == "Regular"
        assert (created["mode"], created["owner"], created["group"]) == ("0664", "0", "0")
        assert created["file_id"] == file.get_file_properties().file_id
        assert "file_attributes" not in created
    links[0].upload_range(b"XY", offset=4, length=2)
    assert file.download_file().readall() == b"0123XY6789"
    assert {link.get_file_properties().etag for link in links} == {file.get_file_properties().etag}
    answer = ResponseRecorder()
    file.delete_file(raw_response_hook=answer)
    assert answer.headers["x-ms-link-count"] == "3"
    assert links[2].get_file_properties().link_count == 3
    assert links[2].download_file().readall() == b"0123XY6789"
    for link in links:
        link.delete_file()
    assert list(nfs.list_directories_and_files("d e")) == []


def test_refused_hard_links(nfs: ShareClient, files: ShareServiceClient) -> None:
    directory = nfs.create_directory("d")
    file = directory.upload_file("f", b"bytes")
    link = nfs.get_file_client("link")
    for target, status, code in (
        ("d", 409, "ResourceTypeMismatch"),
        ("nothing", 404, "ResourceNotFound"),
        ("nowhere/f", 404, "ParentNotFound"),
        ("d/f|", 400, "InvalidResourceName"),
        ("d//f", 400, "OutOfRangeInput"),
        (file.url.replace(nfs.share_name, "other"), 400, "InvalidHeaderValue"),
        (f"{file.url}?sharesnapshot=2024-01-01T00:00:00.0000000Z", 400, "InvalidHeaderValue"),
        ("x" * 256, 400, "OutOfRangeInput"),
        ("x/" * 1_024 + "x", 400, "InvalidFileOrDirectoryPathName"),
    ):
        with refused(status, code):
            link.create_hardlink(target)
    with refused(409, "ResourceAlreadyExists"):
        file.create_hardlink("d/f")
    lease = ShareLeaseClient(file)
    lease.acquire()
    with refused(412, "LeaseIdMissing"):
        link.create_hardlink("d/f")
    assert link.create_hardlink("d/f", lease=lease.id)["link_count"] == 2
    with refused(412, "LeaseIdMissing"):
        link.delete_file()
    smb = files.create_share(unique("smb"))
    smb.get_file_client("f").create_file(0)
    with refused(400, "UnsupportedQueryParameter"):
        smb.get_file_client("g").create_hardlink("f")
    with refused(400, "UnsupportedQueryParameter"):
        smb.get_file_client("g").create_symlink("f")
    with refused(400, "UnsupportedQueryParameter"):
        smb.get_file_client("f").get_symlink()
    smb.delete_share()


@pytest.mark.parametrize(
    ("written", "status", "code"),
    [
        ("", 400, "MissingRequiredHeader"),
        ("/", 409, "ResourceTypeMismatch"),
        ("//", 400, "OutOfRangeInput"),
        ("%", 404, "ResourceNotFound"),
        ("%00", 400, "InvalidHeaderValue"),
        ("%ff", 400, "InvalidHeaderValue"),
        ("%ed%a0%80", 400, "InvalidHeaderValue"),
        ("..", 400, "InvalidResourceName"),
        ("http://", 400, "InvalidHeaderValue"),
        ("http://[", 400, "InvalidHeaderValue"),
        ("http://host/account/share/f", 400, "InvalidHeaderValue"),
        ("d/" * 260 + "f", 400, "InvalidFileOrDirectoryPathName"),
    ],
)
def test_malformed_targets(nfs: ShareClient, written: str, status: int, code: str) -> None:
    hook = with_headers(x_ms_file_target_file=written)
    with refused(status, code):
        nfs.get_file_client("link").create_hardlink("f", raw_request_hook=hook)


def test_any_text_of_a_symbolic_link_is_kept(nfs: ShareClient) -> None:
    for number, text in enumerate((" ", "a\r\nb: c", "%", "100%25", "\U0001f600", "/../..")):
        link = nfs.get_file_client(f"link{number}")
        link.create_symlink(quote(text, safe=""))
        assert unquote(link.get_symlink()["link_text"]) == text
    with refused(400, "MissingRequiredHeader"):
        hook = with_headers(x_ms_link_text="")
        nfs.get_file_client("empty").create_symlink("x", raw_request_hook=hook)


def test_owner_group_and_mode(nfs: ShareClient, share: ShareClient) -> None:
    directory = nfs.get_directory_client("d")
    directory.create_directory(owner="345", group="123", file_mode="7777")
    answer = ResponseRecorder()
    made = directory.get_directory_properties(raw_response_hook=answer)
    assert (made.owner, made.group, made.file_mode) == ("345", "123", "7777")
    assert made.nfs_file_type == "Directory"
    assert "x-ms-file-attributes" not in answer.headers
    assert "x-ms-file-permission-key" not in answer.headers
    file = directory.get_file_client("f")
    file.create_file(1024)
    found = file.get_file_properties()
    assert (found.owner, found.group, found.file_mode) == ("0", "0", "0664")
    assert (found.nfs_file_type, found.link_count) == ("Regular", 1)
    file.set_http_headers(ContentSettings(), owner="1", file_mode="0644")
    found = file.get_file_properties()
    assert (found.owner, found.group, found.file_mode) == ("1", "0", "0644")
    for mode in ("888", "rw-r--r--", "00644"):
        with refused(400, "InvalidHeaderValue"):
            file.create_file(0, file_mode=mode)
    for owner in ("root", "-1", "4294967296"):
        with refused(400, "InvalidHeaderValue"):
            file.create_file(0, owner=owner)
    file.create_file(0, raw_request_hook=with_headers(x_ms_file_file_type="Regular"))
    with refused(400, "InvalidHeaderValue"):
        file.create_file(0, raw_request_hook=with_headers(x_ms_file_file_type="Socket"))
    with refused(400, "UnsupportedHeader"):
        share.get_file_client("f").create_file(0, file_mode="0644")


def test_links_in_snapshots(nfs: ShareClient, files: ShareServiceClient) -> None:
    file = nfs.get_file_client("f")
    file.upload_file(b"one")
    nfs.get_file_client("g").create_hardlink("f")
    nfs.get_file_client("s").create_symlink("f")
    taken = nfs.create_snapshot()["snapshot"]
    nfs.get_file_client("g").upload_range(b"two", offset=0, length=3)
    for name in ("f", "s"):
        nfs.get_file_client(name).delete_file()
    shown = files.get_share_client(nfs.share_name, snapshot=taken)
    assert shown.get_file_client("f").download_file().readall() == b"one"
    assert shown.get_file_client("g").get_file_properties().link_count == 2
    assert [each.name for each in shown.list_directories_and_files()] == ["f", "g", "s"]
    assert nfs.get_file_client("g").get_file_properties().link_count == 1
