"""Listings of containers and blobs."""

from __future__ import annotations

from typing import Any

import pytest
from azure.storage.blob import (
    BlobPrefix,
    BlobServiceClient,
    BlobType,
    ContainerClient,
    ContentSettings,
    PublicAccess,
)

from tests.sdk.blob.clients import blob_service
from tests.sdk.harness import refused
from tests.server import SECOND_ACCOUNT, SECOND_KEYS, Server, unique

TREE = ("a", "a/1", "a/2", "a/b/1", "a/b/2", "b", "c/1", "d//e", "é/1")


# Containers


def test_containers(service: BlobServiceClient) -> None:
    prefix = unique("listed")
    names = [f"{prefix}-{letter}" for letter in "abcde"]
    made = [service.create_container(name, metadata={"Its": name}) for name in names]
    made[1].set_container_access_policy({}, public_access=PublicAccess.BLOB)
    lease = made[2].acquire_lease()
    listed = list(service.list_containers(prefix, include_metadata=True))
    assert [shown.name for shown in listed] == names
    assert [shown.metadata for shown in listed] == [{"Its": name} for name in names]
    assert [shown.public_access for shown in listed] == [None, "blob", None, None, None]
    assert [shown.lease.state for shown in listed][:3] == ["available", "available", "leased"]
    assert listed[2].lease.status == "locked"
    assert listed[2].lease.duration == "infinite"
    for shown, client in zip(listed, made, strict=True):
        properties = client.get_container_properties()
        assert shown.etag == properties.etag
        assert shown.last_modified == properties.last_modified
    lease.release()
    for client in made:
        client.delete_container()
    assert list(service.list_containers(prefix)) == []


def test_containers_without_metadata(service: BlobServiceClient) -> None:
    name = unique("listed")
    service.create_container(name, metadata={"a": "b"})
    assert [shown.metadata for shown in service.list_containers(name)] == [None]
    service.delete_container(name)


def test_pages_of_containers(service: BlobServiceClient) -> None:
    prefix = unique("paged")
    names = [f"{prefix}-{number}" for number in range(5)]
    for name in names:
        service.create_container(name)
    pages = service.list_containers(prefix, results_per_page=2).by_page()
    found = [[shown.name for shown in page] for page in pages]
    assert found == [names[:2], names[2:4], names[4:]]
    for name in names:
        service.delete_container(name)


def test_accounts_do_not_see_each_other(server: Server, container: ContainerClient) -> None:
    with blob_service(server, SECOND_ACCOUNT, SECOND_KEYS[0]) as other:
        assert list(other.list_containers(container.container_name)) == []
        assert not other.get_container_client(container.container_name).exists()


# Blobs


@pytest.fixture
def tree(container: ContainerClient) -> ContainerClient:
    for name in TREE:
        container.upload_blob(name, name.encode())
    return container


def test_flat(tree: ContainerClient) -> None:
    assert list(tree.list_blob_names()) == sorted(TREE)
    assert list(tree.list_blob_names(name_starts_with="a/")) == ["a/1", "a/2", "a/b/1", "a/b/2"]
    assert list(tree.list_blob_names(name_starts_with="é")) == ["é/1"]
    assert list(tree.list_blob_names(name_starts_with="missing")) == []


def test_properties_in_a_listing(container: ContainerClient) -> None:
    settings = ContentSettings("text/plain", "gzip", "fr", "inline", "no-cache")
    blob = container.upload_blob(
        "blob", b"content", metadata={"Key": "<&>"}, content_settings=settings
    )
    own = blob.get_blob_properties()
    (shown,) = container.list_blobs(include=["metadata"])
    assert shown.container == container.container_name
    assert shown.size == 7
    assert shown.etag is not None
    assert shown.etag.strip('"') == (own.etag or "").strip('"')
    assert shown.last_modified == own.last_modified
    assert shown.creation_time == own.creation_time
    assert shown.blob_type == BlobType.BLOCKBLOB
    assert shown.metadata == {"Key": "<&>"}
    assert shown.server_encrypted is True
    assert shown.lease.state == "available"
    for name in (
        "content_type",
        "content_encoding",
        "content_language",
        "content_disposition",
        "cache_control",
        "content_md5",
    ):
        assert shown.content_settings[name] == own.content_settings[name]


def test_metadata_on_request(container: ContainerClient) -> None:
    container.upload_blob("blob", b"", metadata={"a": "b"})
    assert [shown.metadata for shown in container.list_blobs()] == [{}]


@pytest.mark.parametrize("size", [1, 2, 3, 8, 9, 100])
def test_pages(tree: ContainerClient, size: int) -> None:
    pages = tree.list_blobs(results_per_page=size).by_page()
    found = [[shown.name for shown in page] for page in pages]
    names = sorted(TREE)
    assert found == [names[start : start + size] for start in range(0, len(names), size)]


def test_continuing_from_a_page(tree: ContainerClient) -> None:
    pages: Any = tree.list_blobs(results_per_page=4).by_page()
    first = [shown.name for shown in next(pages)]
    tree.upload_blob("a/0", b"before the page")
    tree.upload_blob("b/0", b"within the next")
    resumed = tree.list_blobs(results_per_page=4).by_page(pages.continuation_token)
    rest = [shown.name for page in resumed for shown in page]
    assert first == sorted(TREE)[:4]
    assert rest == sorted([*TREE[4:], "b/0"])


def _walked(container: ContainerClient, prefix: str | None, size: int | None) -> list[str]:
    shown = container.walk_blobs(prefix, delimiter="/", results_per_page=size)
    return [f"[{item.name}]" if isinstance(item, BlobPrefix) else item.name for item in shown]


@pytest.mark.parametrize("size", [None, 1, 2, 3])
def test_by_delimiter(tree: ContainerClient, size: int | None) -> None:
    # The SDK returns the prefixes of each page before or after its blobs.
    found = _walked(tree, None, size)
    assert sorted(found) == sorted(["a", "[a/]", "b", "[c/]", "[d/]", "[é/]"])
    assert sorted(_walked(tree, "a/", size)) == sorted(["a/1", "a/2", "[a/b/]"])
    assert _walked(tree, "a/b/", size) == ["a/b/1", "a/b/2"]
    assert _walked(tree, "d/", size) == ["[d//]"]


def test_by_other_delimiters(container: ContainerClient) -> None:
    for name in ("x--1", "x--2", "x-3", "y"):
        container.upload_blob(name, b"")
    found = [item.name for item in container.walk_blobs(delimiter="--")]
    assert sorted(found) == ["x--", "x-3", "y"]


def test_many_blobs_under_one_prefix(container: ContainerClient) -> None:
    for number in range(60):
        container.upload_blob(f"many/{number:03}", b"")
    container.upload_blob("other", b"")
    assert sorted(_walked(container, None, None)) == ["[many/]", "other"]
    assert sorted(_walked(container, None, 1)) == ["[many/]", "other"]
    assert len(_walked(container, "many/", 7)) == 60


def test_names_that_are_invalid_in_xml(container: ContainerClient) -> None:
    names = sorted(["a\x01b", "a\x1f/c", "a\ufffe", "<&>", "a%01b", " blank "])
    for name in names:
        container.upload_blob(name, b"")
    assert [shown.name for shown in container.list_blobs()] == names
    pages = container.list_blobs(results_per_page=1).by_page()
    assert [shown.name for page in pages for shown in page] == names
    found = {item.name for item in container.walk_blobs(delimiter="/")}
    assert found == {*names} - {"a\x1f/c"} | {"a\x1f/"}


@pytest.mark.parametrize("size", [0, -1])
def test_invalid_page_sizes(container: ContainerClient, size: int) -> None:
    with refused(400, "OutOfRangeQueryParameterValue") as error:
        list(container.list_blobs(results_per_page=size))
    assert error.details["queryparametername"] == "maxresults"


def test_no_blobs(container: ContainerClient) -> None:
    assert list(container.list_blobs()) == []
    assert list(container.walk_blobs()) == []
