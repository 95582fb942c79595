"""Unsupported requests are refused and never treated as other ones."""

from __future__ import annotations

import pytest
from azure.storage.blob import ContainerClient

from tests.sdk.harness import refused, with_headers

VERSION = "2020-01-01T00:00:00.0000000Z"


def test_versions(container: ContainerClient) -> None:
    blob = container.upload_blob("blob", b"content")
    with refused(400, "UnsupportedQueryParameter"):
        blob.delete_blob(version_id=VERSION)
    assert blob.download_blob().readall() == b"content"


@pytest.mark.parametrize("name", ["x_ms_encryption_key", "x_ms_encryption_scope"])
def test_headers(container: ContainerClient, name: str) -> None:
    with refused(400, "UnsupportedHeader") as error:
        container.upload_blob("blob", b"", raw_request_hook=with_headers(**{name: "a=b"}))
    assert error.details["headername"] == name.replace("_", "-")
    assert list(container.list_blob_names()) == []


def test_credentials_for_a_source(container: ContainerClient) -> None:
    blob = container.get_blob_client("blob")
    source = container.upload_blob("source", b"content")
    with refused(400, "InvalidHeaderValue") as error:
        blob.upload_blob_from_url(source.url, source_authorization="Basic dXNlcjpw")
    assert error.details["headername"] == "x-ms-copy-source-authorization"
    assert "headervalue" not in error.details
    # This server does not accept bearer tokens.
    with refused(401, "CannotVerifyCopySource") as error:
        blob.upload_blob_from_url(source.url, source_authorization="Bearer token")
    assert error.details["copysourceerrorcode"] == "InvalidAuthenticationInfo"
    assert list(container.list_blob_names()) == ["source"]


def test_versions_of_a_source(container: ContainerClient) -> None:
    source = container.upload_blob("source", b"content")
    with refused(400, "CannotVerifyCopySource") as error:
        container.get_blob_client("blob").start_copy_from_url(f"{source.url}?versionid={VERSION}")
    assert error.details["copysourceerrorcode"] == "UnsupportedQueryParameter"
    assert list(container.list_blob_names()) == ["source"]


def test_invalid_markers(container: ContainerClient) -> None:
    with refused(400, "OutOfRangeInput"):
        [list(page) for page in container.list_blobs().by_page("%%%")]


def test_lease_durations_are_explained(container: ContainerClient) -> None:
    with refused(400, "InvalidHeaderValue") as error:
        container.acquire_lease(14)
    assert error.details["headername"] == "x-ms-lease-duration"
    assert error.details["headervalue"] == "14"
