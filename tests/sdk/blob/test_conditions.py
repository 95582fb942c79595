"""Conditional headers on blobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.storage.blob import BlobClient, ContainerClient, ContentSettings

from tests.sdk.harness import ResponseRecorder, refused

HOUR = timedelta(hours=1)
OTHER_ETAG = '"0x8D0000000000001"'

Write = Callable[..., Any]

WRITES: dict[str, Callable[[BlobClient], Write]] = {
    "upload": lambda blob: lambda **options: blob.upload_blob(b"new", overwrite=True, **options),
    "metadata": lambda blob: lambda **options: blob.set_blob_metadata({"a": "b"}, **options),
    "headers": lambda blob: (
        lambda **options: blob.set_http_headers(
            ContentSettings(content_type="text/plain"), **options
        )
    ),
    "delete": lambda blob: blob.delete_blob,
}
READS: dict[str, Callable[[BlobClient], Write]] = {
    "download": lambda blob: blob.download_blob,
    "properties": lambda blob: blob.get_blob_properties,
}


@pytest.fixture
def blob(container: ContainerClient) -> BlobClient:
    return container.upload_blob("blob", b"old")


@pytest.mark.parametrize("kind", WRITES)
def test_writes_if_match(blob: BlobClient, kind: str) -> None:
    write = WRITES[kind](blob)
    current = blob.get_blob_properties().etag
    with refused(412, "ConditionNotMet") as error:
        write(etag=OTHER_ETAG, match_condition=MatchConditions.IfNotModified)
    assert current in str(error.details)
    assert OTHER_ETAG in str(error.details)
    assert blob.get_blob_properties().etag == current
    write(etag=current, match_condition=MatchConditions.IfNotModified)


@pytest.mark.parametrize("kind", WRITES)
def test_writes_if_none_match(blob: BlobClient, kind: str) -> None:
    write = WRITES[kind](blob)
    current = blob.get_blob_properties().etag
    with refused(412, "ConditionNotMet"):
        write(etag=current, match_condition=MatchConditions.IfModified)
    write(etag=OTHER_ETAG, match_condition=MatchConditions.IfModified)


@pytest.mark.parametrize("kind", WRITES)
def test_writes_by_date(blob: BlobClient, kind: str) -> None:
    write = WRITES[kind](blob)
    changed = blob.get_blob_properties().last_modified
    with refused(412, "ConditionNotMet"):
        write(if_modified_since=changed)
    with refused(412, "ConditionNotMet"):
        write(if_unmodified_since=changed - HOUR)
    write(if_unmodified_since=changed)


def test_writes_if_modified_since(blob: BlobClient) -> None:
    changed = blob.get_blob_properties().last_modified
    blob.upload_blob(b"new", overwrite=True, if_modified_since=changed - HOUR)
    assert blob.download_blob().readall() == b"new"


@pytest.mark.parametrize("kind", ["metadata", "headers", "delete"])
def test_conditions_on_missing_blobs(container: ContainerClient, kind: str) -> None:
    write = WRITES[kind](container.get_blob_client("missing"))
    with refused(404, "BlobNotFound"):
        write(etag=OTHER_ETAG, match_condition=MatchConditions.IfNotModified)


def test_creation_with_an_etag(container: ContainerClient) -> None:
    blob = container.get_blob_client("missing")
    with refused(412, "ConditionNotMet"):
        blob.upload_blob(
            b"", overwrite=True, etag=OTHER_ETAG, match_condition=MatchConditions.IfNotModified
        )
    assert not blob.exists()
    blob.upload_blob(
        b"", overwrite=True, etag=OTHER_ETAG, match_condition=MatchConditions.IfModified
    )
    assert blob.exists()


def test_creation_only(blob: BlobClient) -> None:
    with refused(409, "BlobAlreadyExists"):
        blob.upload_blob(b"new", overwrite=True, match_condition=MatchConditions.IfMissing)
    blob.delete_blob()
    blob.upload_blob(b"new", overwrite=True, match_condition=MatchConditions.IfMissing)


def test_replacement_only(container: ContainerClient) -> None:
    blob = container.get_blob_client("blob")
    with refused(412, "ConditionNotMet"):
        blob.upload_blob(b"new", overwrite=True, match_condition=MatchConditions.IfPresent)
    blob.upload_blob(b"old")
    blob.upload_blob(b"new", overwrite=True, match_condition=MatchConditions.IfPresent)


@pytest.mark.parametrize("kind", READS)
def test_reads_by_etag(blob: BlobClient, kind: str) -> None:
    read = READS[kind](blob)
    current = blob.get_blob_properties().etag
    read(etag=current, match_condition=MatchConditions.IfNotModified)
    read(etag=OTHER_ETAG, match_condition=MatchConditions.IfModified)
    with refused(412, "ConditionNotMet"):
        read(etag=OTHER_ETAG, match_condition=MatchConditions.IfNotModified)
    with refused(304, "ConditionNotMet"):
        read(etag=current, match_condition=MatchConditions.IfModified)


@pytest.mark.parametrize("kind", READS)
def test_reads_by_date(blob: BlobClient, kind: str) -> None:
    read = READS[kind](blob)
    changed = blob.get_blob_properties().last_modified
    read(if_modified_since=changed - HOUR)
    read(if_unmodified_since=changed)
    with refused(304, "ConditionNotMet"):
        read(if_modified_since=changed)
    with refused(412, "ConditionNotMet"):
        read(if_unmodified_since=changed - HOUR)


def test_every_change_has_its_own_etag(blob: BlobClient) -> None:
    etags: list[object] = [blob.get_blob_properties().etag]
    for _ in range(20):
        etags.append(blob.upload_blob(b"same", overwrite=True)["etag"])
        etags.append(blob.set_blob_metadata({"same": "same"})["etag"])
        etags.append(blob.set_http_headers(ContentSettings(content_type="same/same"))["etag"])
    assert len(set(etags)) == len(etags)


def test_etags_are_quoted(blob: BlobClient) -> None:
    answer = ResponseRecorder()
    blob.get_blob_properties(raw_response_hook=answer)
    etag = answer.headers["etag"]
    assert etag.startswith('"0x')
    assert etag.endswith('"')
