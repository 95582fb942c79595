"""Owner, group and mode of directories and files in NFS shares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from azure.storage.fileshare import ContentSettings, ShareClient, ShareServiceClient

from tests.sdk.harness import ResponseRecorder
from tests.server import unique


@pytest.fixture
def nfs_share(files: ShareServiceClient) -> Iterator[ShareClient]:
    share = files.get_share_client(unique("nfs"))
    share.create_share(protocols="NFS")
    yield share
    share.delete_share()


def _owner(properties: Any) -> tuple[str, str, str, str]:
    return properties.owner, properties.group, properties.file_mode, properties.nfs_file_type


def test_directories(nfs_share: ShareClient) -> None:
    directory = nfs_share.get_directory_client("Papers")
    directory.create_directory(owner="345", group="123", file_mode="7777")
    answer = ResponseRecorder()
    shown = directory.get_directory_properties(raw_response_hook=answer)
    assert _owner(shown) == ("345", "123", "7777", "Directory")
    assert not {"x-ms-file-attributes", "x-ms-file-permission-key"} & answer.headers.keys()
    assert "x-ms-link-count" not in answer.headers
    directory.set_http_headers(file_mode="0750")
    assert _owner(directory.get_directory_properties()) == ("345", "123", "0750", "Directory")
    directory.set_directory_metadata({"Colour": "red"})
    assert _owner(directory.get_directory_properties()) == ("345", "123", "0750", "Directory")


def test_files(nfs_share: ShareClient) -> None:
    file = nfs_share.get_file_client("Report")
    file.create_file(5, owner="4294967295", group="0", file_mode="0111")
    answer = ResponseRecorder()
    shown = file.get_file_properties(raw_response_hook=answer)
    assert _owner(shown) == ("4294967295", "0", "0111", "Regular")
    assert shown.link_count == 1
    assert not {"x-ms-file-attributes", "x-ms-file-permission-key"} & answer.headers.keys()
    file.set_http_headers(ContentSettings(), owner="7", group="8")
    assert _owner(file.get_file_properties()) == ("7", "8", "0111", "Regular")
    file.create_file(5)
    assert _owner(file.get_file_properties()) == ("0", "0", "0664", "Regular")
    assert _owner(file.rename_file("Letter").get_file_properties())[2] == "0664"


def test_defaults_and_listings(nfs_share: ShareClient) -> None:
    nfs_share.create_directory("Papers")
    shown = nfs_share.get_directory_client("Papers").get_directory_properties()
    assert _owner(shown) == ("0", "0", "0755", "Directory")
    details = ["timestamps", "Etag", "Attributes", "PermissionKey"]
    listed: list[Any] = list(nfs_share.list_directories_and_files(include=details))
    assert [(entry.name, entry.file_attributes) for entry in listed] == [("Papers", None)]
    assert listed[0].etag == shown.etag
