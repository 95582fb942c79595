"""Names and metadata at their limits of length and characters."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from azure.storage.blob import (
    BlobBlock,
    BlobPrefix,
    BlobServiceClient,
    ContainerClient,
)

from tests.sdk.blob.raw import RawContainerClient, RawResponse
from tests.sdk.harness import refused
from tests.server import unique

METADATA_BYTES_MAX = 8 << 10
SMILE = "\U0001f60a"


class RawNamesClient(RawContainerClient):
    """Sends requests with exactly these paths and headers."""

    def put(self, path: str, *headers: tuple[str, str]) -> RawResponse:
        kind = ("x-ms-blob-type", "BlockBlob")
        return self.send("PUT", path, (kind, ("Content-Length", "0"), *headers))


@pytest.fixture
def raw(container: ContainerClient) -> RawNamesClient:
    return RawNamesClient(container)


# Names

LONGEST = {
    "ascii": "a" * 1024,
    "two bytes each": "é" * 1024,
    "three bytes each": "你" * 1024,
    "two units each": SMILE * 512,
    "both": "a" * 1022 + SMILE,
    "segments": "/".join(["s"] * 254),
    "long segments": "/".join(["sss"] * 253 + ["s" * 12]),
}


@pytest.mark.parametrize("name", LONGEST.values(), ids=list(LONGEST))
def test_the_longest_names(container: ContainerClient, name: str) -> None:
    """Every operation works on a blob with such a name."""
    blob = container.upload_blob(name, b"put")
    assert blob.download_blob().readall() == b"put"
    blob.set_blob_metadata({"a": "b"})
    taken = blob.create_snapshot()
    (listed,) = container.list_blobs(include=["metadata"])
    assert (listed.name, listed.metadata) == (name, {"a": "b"})
    assert [found.name for found in container.list_blobs(name_starts_with=name)] == [name]
    found = list(container.list_blobs(include=["snapshots"]))
    assert [item.snapshot for item in found] == [taken["snapshot"], None]
    blob.stage_block("a", b"committed")
    blob.commit_block_list([BlobBlock("a")])
    assert blob.download_blob().readall() == b"committed"
    blob.delete_blob(delete_snapshots="include")
    assert list(container.list_blob_names()) == []


BEYOND = {
    "ascii": "a" * 1025,
    "two bytes each": "é" * 1025,
    "two units each": SMILE * 512 + "a",
    "segments": "/".join(["s"] * 255),
    "empty segments": "a" + "/" * 254,
    "backslashes": "\\".join(["s"] * 255),
}


@pytest.mark.parametrize("name", BEYOND.values(), ids=list(BEYOND))
def test_names_beyond_the_limit(container: ContainerClient, name: str) -> None:
    with refused(400, "OutOfRangeInput"):
        container.upload_blob(name, b"")
    with refused(400, "OutOfRangeInput"):
        container.get_blob_client(name).stage_block("a", b"content")
    assert list(container.list_blob_names()) == []


def test_pages_of_the_longest_names(container: ContainerClient) -> None:
    """A marker contains such a name and is sent back in a URL."""
    names = sorted(SMILE * 511 + end for end in ("a", "b", "c", "é", "z"))
    for name in names:
        container.upload_blob(name, b"")
    pages = container.list_blobs(results_per_page=1).by_page()
    assert [[blob.name for blob in page] for page in pages] == [[name] for name in names]


ODD = [
    "ends.", "ends..", "ends/", "ends//", "/begins", "//begins", "a//b", "a/./b", "a/../b", ".",
    "..", "./", "../a", "a/.", "a/..", " ", " a ", "a b", "a+b", "a%b", "a%2Fb", "a%252Fb", "a?b",
    "a#b", "a&b=c", "a:b", "a*b", "<a>", "a'b\"", "é", "e\u0301", "\u00a0", "\u200b", "$",
]  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_names(container: ContainerClient, raw: RawNamesClient, name: str) -> None:
    """Each is a distinct name: nothing is normalised, truncated or decoded twice."""
    assert raw.put(f"/{quote(name, safe='')}").status == 201
    assert list(container.list_blob_names()) == [name]
    response = raw.send("HEAD", f"/{quote(name, safe='/')}")
    assert response.status == 200


def test_names_that_look_alike_are_not_the_same(
    container: ContainerClient, raw: RawNamesClient
) -> None:
    for name in ODD:
        assert raw.put(f"/{quote(name, safe='')}").status == 201
    assert sorted(container.list_blob_names()) == sorted(ODD)


def test_an_encoded_slash_is_a_slash(container: ContainerClient, raw: RawNamesClient) -> None:
    """So is a backslash, encoded or not."""
    for written in ("/a%2Fb", "/a%2fc", "/a%5Cd", "/a\\e"):
        assert raw.put(written).status == 201
    assert sorted(container.list_blob_names()) == ["a/b", "a/c", "a/d", "a/e"]
    assert raw.send("HEAD", "/a/b").status == 200
    (prefix,) = container.walk_blobs(delimiter="/")
    assert isinstance(prefix, BlobPrefix)
    assert prefix.name == "a/"


@pytest.mark.parametrize("written", ["/%FF", "/%C3", "/%ED%A0%80", "/a%C0%AFb"])
def test_invalid_utf8_is_refused(
    container: ContainerClient, raw: RawNamesClient, written: str
) -> None:
    response = raw.put(written)
    assert response.status == 400
    assert response.code in {"InvalidUri", "InvalidResourceName"}
    assert list(container.list_blob_names()) == []


ILLEGAL = ["a\x01b", "\x1f", "a\x0b", "\ufffe", "a\uffff", "tab\tline\nreturn\rend", "\x7f\x85"]


def test_names_that_are_invalid_in_xml(container: ContainerClient, raw: RawNamesClient) -> None:
    for name in ILLEGAL:
        assert raw.put(f"/{quote(name, safe='')}").status == 201
    assert sorted(blob.name for blob in container.list_blobs()) == sorted(ILLEGAL)
    pages = container.list_blobs(results_per_page=1).by_page()
    assert sorted(blob.name for page in pages for blob in page) == sorted(ILLEGAL)


def test_prefixes_that_are_invalid_in_xml(container: ContainerClient, raw: RawNamesClient) -> None:
    for name in ("a\x01/b", "a\x01/c", "a\uffff/d"):
        assert raw.put(f"/{quote(name, safe='')}").status == 201
    found = list(container.walk_blobs(delimiter="/"))
    assert sorted(item.name for item in found) == ["a\x01/", "a\uffff/"]
    inside = container.list_blobs(name_starts_with="a\x01/")
    assert [blob.name for blob in inside] == ["a\x01/b", "a\x01/c"]
    by_character = container.walk_blobs(name_starts_with="a", delimiter="\x01")
    assert sorted(item.name for item in by_character) == ["a\x01", "a\uffff/d"]


# Metadata


def metadata_of(size: int) -> dict[str, str]:
    """Returns metadata with so many bytes in names and values together."""
    whole, rest = divmod(size, 2048)
    pairs = {f"n{number}": "v" * 2046 for number in range(whole)}
    if rest:
        pairs["r"] = "v" * (rest - 1)
    assert sum(len(name) + len(value) for name, value in pairs.items()) == size
    return pairs


def test_the_most_metadata(service: BlobServiceClient, container: ContainerClient) -> None:
    most = metadata_of(METADATA_BYTES_MAX)
    blob = container.upload_blob("blob", b"", metadata=most)
    assert blob.get_blob_properties().metadata == most
    (listed,) = container.list_blobs(include=["metadata"])
    assert listed.metadata == most
    blob.set_blob_metadata({})
    blob.set_blob_metadata(most)
    assert blob.get_blob_properties().metadata == most
    blob.stage_block("a", b"content")
    blob.commit_block_list([BlobBlock("a")], metadata=most)
    assert blob.get_blob_properties().metadata == most
    blob.create_snapshot(metadata=most)
    container.set_container_metadata(most)
    assert container.get_container_properties().metadata == most
    made = service.create_container(unique(), metadata=most)
    assert made.get_container_properties().metadata == most
    made.delete_container()


def test_metadata_beyond_the_limit(service: BlobServiceClient, container: ContainerClient) -> None:
    beyond = metadata_of(METADATA_BYTES_MAX + 1)
    blob = container.upload_blob("blob", b"before", metadata={"kept": "yes"})
    blob.stage_block("a", b"content")
    with refused(400, "MetadataTooLarge"):
        blob.upload_blob(b"after", metadata=beyond, overwrite=True)
    with refused(400, "MetadataTooLarge"):
        blob.set_blob_metadata(beyond)
    with refused(400, "MetadataTooLarge"):
        blob.commit_block_list([BlobBlock("a")], metadata=beyond)
    with refused(400, "MetadataTooLarge"):
        blob.create_snapshot(metadata=beyond)
    with refused(400, "MetadataTooLarge"):
        container.set_container_metadata(beyond)
    with refused(400, "MetadataTooLarge"):
        service.create_container(unique(), metadata=beyond)
    assert blob.get_blob_properties().metadata == {"kept": "yes"}
    assert blob.download_blob().readall() == b"before"
    assert container.get_container_properties().metadata == {}
    assert len(list(container.list_blobs(include=["snapshots"]))) == 1


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ((("x-ms-meta-Name", "1"), ("x-ms-meta-name", "2")), "InvalidMetadata"),
        ((("x-ms-meta-name", "1"), ("x-ms-meta-name", "2")), "InvalidMetadata"),
        ((("x-ms-meta-", "1"),), "EmptyMetadataKey"),
        ((("x-ms-meta-1a", "1"),), "InvalidMetadata"),
        ((("x-ms-meta-a-b", "1"),), "InvalidMetadata"),
        ((("x-ms-meta-a", "\u00e9"),), "InvalidMetadata"),
    ],
)
def test_invalid_metadata(
    container: ContainerClient, raw: RawNamesClient, headers: tuple[tuple[str, str], ...], code: str
) -> None:
    response = raw.put("/blob", *headers)
    assert (response.status, response.code) == (400, code)
    assert list(container.list_blob_names()) == []


def test_names_of_metadata_keep_their_case(container: ContainerClient, raw: RawNamesClient) -> None:
    assert raw.put("/blob", ("X-MS-Meta-MixedCase", "Value"), ("x-ms-meta-a", "")).status == 201
    assert container.get_blob_client("blob").get_blob_properties().metadata == {
        "MixedCase": "Value",
        "a": "",
    }
