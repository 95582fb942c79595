"""Listings of directories: order, prefixes, pages and details."""

from __future__ import annotations

import base64
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from azure.storage.fileshare import ShareClient

from tests.sdk.harness import ResponseRecorder, refused, run_in_threads, with_headers

DETAILS = ["timestamps", "Etag", "Attributes", "PermissionKey"]


class BodyRecorder(ResponseRecorder):
    """A response hook that keeps the document, too."""

    root: ElementTree.Element

    def __call__(self, response: Any) -> None:
        super().__call__(response)
        self.root = ElementTree.fromstring(response.http_response.body())


def _fill(share: ShareClient, names: list[str]) -> None:
    run_in_threads(
        4, lambda n: [share.get_file_client(name).create_file(len(name)) for name in names[n::4]]
    )


def test_files_and_directories_in_one_order(share: ShareClient) -> None:
    share.create_directory("b")
    share.create_directory("D")
    _fill(share, ["a", "C", "é", "_", "10", "9"])
    answer = BodyRecorder()
    listed: list[Any] = list(share.list_directories_and_files(raw_response_hook=answer))
    rows = [(row.tag, row.findtext("Name")) for row in answer.root.findall("Entries/*")]
    assert [name for _, name in rows] == ["10", "9", "a", "b", "C", "D", "_", "é"]
    assert [name for tag, name in rows if tag == "Directory"] == ["b", "D"]
    assert {entry.name: entry.size for entry in listed if not entry.is_directory}["10"] == 2
    assert list(share.list_directories_and_files("b")) == []


def test_prefixes(share: ShareClient) -> None:
    _fill(share, ["report", "Report2", "other", "réport", "a&b"])
    for prefix, names in (
        ("rep", ["report", "Report2"]),
        ("REPORT2", ["Report2"]),
        ("RÉ", ["réport"]),
        ("a&", ["a&b"]),
        ("x", []),
    ):
        found = share.list_directories_and_files(name_starts_with=prefix)
        assert [entry.name for entry in found] == names, prefix


def test_pages(share: ShareClient) -> None:
    names = [f"name {number:02}" for number in range(11)]
    _fill(share, names)
    pages = share.list_directories_and_files(results_per_page=4).by_page()
    assert [[entry.name for entry in page] for page in pages] == [names[:4], names[4:8], names[8:]]
    pages = share.list_directories_and_files(results_per_page=4).by_page()
    next(pages)
    marker = cast("Any", pages).continuation_token
    encoded = base64.b64encode(b"name 04").decode().replace("=", "-")
    assert marker == f"1!{len(encoded)}!{encoded}"
    share.get_file_client("name 04").delete_file()
    again = share.list_directories_and_files(results_per_page=4).by_page(marker)
    assert [entry.name for entry in next(again)] == names[5:9]


def test_a_page_with_its_parameters(share: ShareClient) -> None:
    directory = share.create_directory("Papers")
    subdirectory = directory.create_subdirectory("sub")
    subdirectory.create_subdirectory("x")
    subdirectory.create_subdirectory("y")
    answer = BodyRecorder()
    list(subdirectory.list_directories_and_files(raw_response_hook=answer))
    root = answer.root
    assert answer.headers["content-type"] == "application/xml"
    assert root.tag == "EnumerationResults"
    assert root.attrib["ShareName"] == share.share_name
    assert root.attrib["DirectoryPath"] == "Papers/sub"
    assert not {"Encoded", "ShareSnapshot"} & root.attrib.keys()
    assert [child.tag for child in root] == ["DirectoryId", "Entries", "NextMarker"]
    shown = subdirectory.get_directory_properties()
    assert root.findtext("DirectoryId") == shown.file_id
    assert [child.tag for child in root.iter("Directory")] == ["Directory"] * 2
    pages = subdirectory.list_directories_and_files(
        "x", results_per_page=1, raw_response_hook=answer
    ).by_page()
    next(pages)
    tags = [child.tag for child in answer.root]
    assert tags == ["Prefix", "MaxResults", "DirectoryId", "Entries", "NextMarker"]
    old = with_headers(x_ms_version="2020-08-04")
    list(subdirectory.list_directories_and_files(raw_request_hook=old, raw_response_hook=answer))
    assert [child.tag for child in answer.root] == ["Entries", "NextMarker"]
    assert answer.root.find("Entries/Directory/FileId") is None


def test_details(share: ShareClient) -> None:
    share.get_file_client("file").create_file(5, file_attributes="Hidden")
    share.create_directory("folder")
    answer = BodyRecorder()
    listed: list[Any] = list(
        share.list_directories_and_files(include=DETAILS, raw_response_hook=answer)
    )
    clients: list[Any] = [
        share.get_directory_client("folder").get_directory_properties(),
        share.get_file_client("file").get_file_properties(),
    ]
    for entry, client in zip(listed, clients, strict=True):
        assert entry.etag == client.etag
        assert entry.file_attributes == client.file_attributes
        assert entry.permission_key == client.permission_key
        assert entry.last_modified == client.last_modified
        assert entry.file_id == client.file_id
    properties = answer.root.find("Entries/File/Properties")
    assert properties is not None
    assert [child.tag for child in properties] == [
        "Content-Length",
        "CreationTime",
        "LastAccessTime",
        "LastWriteTime",
        "ChangeTime",
        "Last-Modified",
        "Etag",
    ]
    directory = answer.root.find("Entries/Directory")
    assert directory is not None
    names = ["Name", "FileId", "Properties", "Attributes", "PermissionKey"]
    assert [child.tag for child in directory] == names
    list(share.list_directories_and_files(include=["Etag"], raw_response_hook=answer))
    properties = answer.root.find("Entries/Directory/Properties")
    assert properties is not None
    assert [child.tag for child in properties] == ["Etag"]


def test_names_that_xml_cannot_contain(share: ShareClient) -> None:
    directory = share.create_directory("folder\uffff")
    directory.get_file_client("\ufffe").create_file(3)
    answer = BodyRecorder()
    (entry,) = directory.list_directories_and_files("\ufffe", raw_response_hook=answer)
    assert entry.name == "\ufffe"
    assert answer.root.attrib["Encoded"] == "true"
    assert answer.root.attrib["DirectoryPath"] == "folder%EF%BF%BF"
    prefix = answer.root.find("Prefix")
    assert prefix is not None
    assert (prefix.attrib["Encoded"], prefix.text) == ("true", "%EF%BF%BE")


def test_snapshots(share: ShareClient) -> None:
    _fill(share, ["a", "b"])
    share.create_directory("c")
    snapshot = share.create_snapshot()["snapshot"]
    share.get_file_client("a").delete_file()
    share.get_file_client("b").resize_file(100)
    _fill(share, ["d"])
    url = share.url.rsplit("/", 1)[0]
    old = ShareClient(url, share.share_name, snapshot=snapshot, credential=share.credential)
    answer = BodyRecorder()
    listed: list[Any] = list(old.list_directories_and_files(raw_response_hook=answer))
    assert [entry.name for entry in listed] == ["c", "a", "b"]
    assert [entry.size for entry in listed[1:]] == [1, 1]
    assert answer.root.attrib["ShareSnapshot"] == snapshot
    pages = old.list_directories_and_files(results_per_page=2).by_page()
    assert [[entry.name for entry in page] for page in pages] == [["a", "b"], ["c"]]
    assert [entry.name for entry in share.list_directories_and_files()] == ["c", "b", "d"]


@pytest.mark.parametrize("marker", ["b", "1!4!YQ--", "1!5!YQ--", "2!4!YQ--", "1!4!!!!!", "1!0!"])
def test_markers(share: ShareClient, marker: str) -> None:
    _fill(share, ["a", "b"])
    pages = share.list_directories_and_files().by_page(marker)
    if marker == "1!4!YQ--":
        assert [entry.name for entry in next(pages)] == ["a", "b"]
    else:
        with refused(400, "InvalidQueryParameterValue"):
            next(pages)
