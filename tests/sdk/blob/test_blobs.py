"""Block blobs: put, get, properties and delete."""

from __future__ import annotations

import base64
import hashlib
import io
import random
from datetime import UTC, datetime, timedelta

import pytest
from azure.storage.blob import BlobLeaseClient, BlobType, ContainerClient, ContentSettings

from tests.sdk.harness import ResponseRecorder, refused, with_headers

KIB, MIB = 1024, 1024 * 1024


def content_of(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def md5_of(content: bytes) -> bytes:
    return hashlib.md5(content, usedforsecurity=False).digest()


# Put and get


@pytest.mark.parametrize(
    "size", [0, 1, 511, 32 * KIB, 32 * KIB + 1, MIB, 5 * MIB + 3, 33 * MIB, 64 * MIB]
)
def test_put_and_get(container: ContainerClient, size: int) -> None:
    content = content_of(size)
    blob = container.upload_blob("blob", content)
    shown = blob.get_blob_properties()
    assert shown.size == size
    assert bytes(shown.content_settings.content_md5 or b"") == md5_of(content)
    assert blob.download_blob().readall() == content


def test_response_to_an_upload(container: ContainerClient) -> None:
    answer = ResponseRecorder()
    blob = container.get_blob_client("blob")
    result = blob.upload_blob(b"content", raw_response_hook=answer)
    assert answer.status == 201
    assert base64.b64decode(answer.headers["content-md5"]) == md5_of(b"content")
    assert len(base64.b64decode(answer.headers["x-ms-content-crc64"])) == 8
    assert answer.headers["x-ms-request-server-encrypted"] == "true"
    shown = blob.get_blob_properties()
    assert result["etag"] == shown.etag == answer.headers["etag"]
    assert result["last_modified"] == shown.last_modified


def test_properties(container: ContainerClient) -> None:
    blob = container.upload_blob("blob", b"content", metadata={"Key": "Value"})
    shown = blob.get_blob_properties()
    assert shown.name == "blob"
    assert shown.container == container.container_name
    assert shown.blob_type == BlobType.BLOCKBLOB
    assert shown.metadata == {"Key": "Value"}
    assert shown.size == 7
    assert shown.server_encrypted is True
    assert shown.content_settings.content_type == "application/octet-stream"
    assert (shown.lease.status, shown.lease.state) == ("unlocked", "available")
    assert shown.creation_time == shown.last_modified
    assert abs(datetime.now(UTC) - shown.last_modified) < timedelta(minutes=1)
    assert blob.exists()
    assert blob.download_blob().properties.etag == shown.etag


def test_overwriting_keeps_only_the_creation_time(container: ContainerClient) -> None:
    settings = ContentSettings(content_type="text/plain", content_language="fr")
    blob = container.upload_blob("blob", b"old", metadata={"a": "b"}, content_settings=settings)
    old = blob.get_blob_properties()
    blob.upload_blob(b"newer", overwrite=True)
    new = blob.get_blob_properties()
    assert new.etag != old.etag
    assert new.creation_time == old.creation_time
    assert new.metadata == {}
    assert new.content_settings.content_type == "application/octet-stream"
    assert new.content_settings.content_language is None
    assert blob.download_blob().readall() == b"newer"


def test_overwriting_must_be_requested(container: ContainerClient) -> None:
    blob = container.upload_blob("blob", b"old")
    with refused(409, "BlobAlreadyExists"):
        blob.upload_blob(b"new")
    assert blob.download_blob().readall() == b"old"


def test_uploads_from_streams(container: ContainerClient) -> None:
    content = content_of(3 * MIB)
    blob = container.upload_blob("stream", io.BytesIO(content), length=len(content))
    kept = io.BytesIO()
    assert blob.download_blob().readinto(kept) == len(content)
    assert kept.getvalue() == content
    assert b"".join(blob.download_blob().chunks()) == content


def test_text(container: ContainerClient) -> None:
    blob = container.upload_blob("text", "étagère")
    assert blob.download_blob(encoding="utf-8").readall() == "étagère"


@pytest.mark.parametrize("kind", ["Unheard", "Block Blob"])
def test_unsupported_blob_types(container: ContainerClient, kind: str) -> None:
    with refused(400, "InvalidHeaderValue") as error:
        container.upload_blob("blob", b"", raw_request_hook=with_headers(x_ms_blob_type=kind))
    assert error.details["headername"] == "x-ms-blob-type"


# Names


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "x" * 1024,
        "é" * 1024,
        "😀" * 512,
        "/".join("s" * 254),
        "a/b/c",
        "with space",
        "per%cent",
        "per%41cent",
        "plus+sign",
        "question?mark",
        "hash#sign",
        "&<>\"'",
        "colon:semi;comma,",
        "Étagère/日本語/𝄞",
        "control\x01\x1f",
        "\uffff\ufffe",
        "line\nbreak\ttab",
        "trailing.",
        "tilde~{}[]^`|",
        "(parentheses)!*$@=",
        " leading",
        "a//b",
    ],
)
def test_valid_names(container: ContainerClient, name: str) -> None:
    blob = container.upload_blob(name, name.encode(), metadata={"a": "b"})
    assert blob.download_blob().readall() == name.encode()
    assert blob.get_blob_properties().metadata == {"a": "b"}
    assert [shown.name for shown in container.list_blobs()] == [name]
    blob.delete_blob()
    assert not blob.exists()


@pytest.mark.parametrize("name", ["x" * 1025, "é" * 1025, "😀" * 513, "/".join("s" * 255)], ids=len)
def test_invalid_names(container: ContainerClient, name: str) -> None:
    with refused(400, "OutOfRangeInput"):
        container.upload_blob(name, b"")


# Ranges


def test_ranges(container: ContainerClient) -> None:
    content = content_of(100 * KIB)
    blob = container.upload_blob("blob", content)
    for offset, length in ((0, 1), (0, 512), (17, 40_000), (102_399, 1), (102_000, 5_000)):
        downloaded = blob.download_blob(offset=offset, length=length)
        assert downloaded.readall() == content[offset : offset + length]
    assert blob.download_blob(offset=50_000).readall() == content[50_000:]


def test_response_to_a_range(container: ContainerClient) -> None:
    blob = container.upload_blob("blob", b"0123456789")
    answer = ResponseRecorder()
    blob.download_blob(offset=2, length=3, raw_response_hook=answer).readall()
    assert answer.status == 206
    assert answer.headers["content-range"] == "bytes 2-4/10"
    assert answer.headers["content-length"] == "3"
    assert answer.headers["accept-ranges"] == "bytes"
    assert base64.b64decode(answer.headers["x-ms-blob-content-md5"]) == md5_of(b"0123456789")


def test_ranges_past_the_end(container: ContainerClient) -> None:
    blob = container.upload_blob("blob", b"0123456789")
    for offset in (10, 11, 1 << 40):
        with refused(416, "InvalidRange"):
            blob.download_blob(offset=offset, length=5)
    empty = container.upload_blob("empty", b"")
    assert empty.download_blob().readall() == b""
    with refused(416, "InvalidRange"):
        empty.download_blob(offset=1, length=1)


def test_chunked_and_parallel_downloads(container: ContainerClient) -> None:
    content = content_of(9 * MIB + 7)
    container.upload_blob("blob", content)
    small = ContainerClient(
        container.url.rsplit("/", 1)[0],
        container.container_name,
        container.credential,
        max_single_get_size=MIB,
        max_chunk_get_size=MIB,
    )
    with small:
        assert small.download_blob("blob", max_concurrency=4).readall() == content


# Checksums


def test_validated_content(container: ContainerClient) -> None:
    content = content_of(MIB)
    blob = container.upload_blob("blob", content, validate_content=True)
    assert blob.download_blob(validate_content=True).readall() == content


def test_validated_ranges(container: ContainerClient) -> None:
    content = content_of(MIB)
    blob = container.upload_blob("blob", content)
    answer = ResponseRecorder()
    downloaded = blob.download_blob(1_000, 5_000, validate_content=True, raw_response_hook=answer)
    assert downloaded.readall() == content[1_000:6_000]
    assert base64.b64decode(answer.headers["content-md5"]) == md5_of(content[1_000:6_000])


def test_wrong_md5(container: ContainerClient) -> None:
    wrong = base64.b64encode(md5_of(b"other")).decode()
    with refused(400, "Md5Mismatch") as error:
        container.upload_blob("blob", b"content", raw_request_hook=with_headers(Content_MD5=wrong))
    assert error.details["userspecifiedmd5"] == wrong
    assert base64.b64decode(error.details["servercalculatedmd5"]) == md5_of(b"content")
    assert not container.get_blob_client("blob").exists()


@pytest.mark.parametrize("written", ["not base64!", "c2hvcnQ="])
def test_malformed_md5(container: ContainerClient, written: str) -> None:
    with refused(400, "InvalidMd5"):
        container.upload_blob("blob", b"", raw_request_hook=with_headers(Content_MD5=written))


def test_crc64(container: ContainerClient) -> None:
    answer = ResponseRecorder()
    container.upload_blob("one", b"content", raw_response_hook=answer)
    crc = answer.headers["x-ms-content-crc64"]
    right = with_headers(x_ms_content_crc64=crc)
    container.upload_blob("two", b"content", raw_request_hook=right)
    with refused(400, "Crc64Mismatch"):
        container.upload_blob("three", b"other", raw_request_hook=right)
    assert sorted(container.list_blob_names()) == ["one", "two"]


def test_an_md5_of_the_client_is_checked_and_stored(container: ContainerClient) -> None:
    right = bytearray(hashlib.md5(b"content", usedforsecurity=False).digest())
    settings = ContentSettings(content_md5=right)
    blob = container.upload_blob("blob", b"content", content_settings=settings)
    assert blob.get_blob_properties().content_settings.content_md5 == right
    with refused(400, "Md5Mismatch"):
        container.upload_blob("blob", b"other", content_settings=settings, overwrite=True)
    assert blob.download_blob().readall() == b"content"


# Properties and metadata


def test_content_settings(container: ContainerClient) -> None:
    settings = ContentSettings(
        content_type="text/html; charset=utf-8",
        content_encoding="identity",
        content_language="fr-FR",
        content_disposition='attachment; filename="a b.txt"',
        cache_control="no-cache, max-age=0",
    )
    blob = container.upload_blob("blob", b"content", content_settings=settings)
    for shown in (blob.get_blob_properties(), blob.download_blob().properties):
        found = shown.content_settings
        assert found.content_type == settings.content_type
        assert found.content_encoding == settings.content_encoding
        assert found.content_language == settings.content_language
        assert found.content_disposition == settings.content_disposition
        assert found.cache_control == settings.cache_control


def test_setting_some_headers_clears_the_others(container: ContainerClient) -> None:
    first = ContentSettings(content_type="text/plain", content_language="fr")
    blob = container.upload_blob("blob", b"content", content_settings=first, metadata={"a": "b"})
    old = blob.get_blob_properties()
    result = blob.set_http_headers(
        ContentSettings(content_type="text/html", cache_control="no-store")
    )
    new = blob.get_blob_properties()
    assert result["etag"] == new.etag != old.etag
    assert new.content_settings.content_type == "text/html"
    assert new.content_settings.cache_control == "no-store"
    assert new.content_settings.content_language is None
    assert new.metadata == {"a": "b"}
    assert blob.download_blob().readall() == b"content"


def test_metadata(container: ContainerClient) -> None:
    blob = container.upload_blob("blob", b"content", metadata={"Old": "1"})
    old = blob.get_blob_properties()
    result = blob.set_blob_metadata({"CamelCase": "Two words", "_x1": ""})
    new = blob.get_blob_properties()
    assert result["etag"] == new.etag != old.etag
    assert new.metadata == {"CamelCase": "Two words", "_x1": ""}
    assert blob.download_blob().properties.metadata == new.metadata
    blob.set_blob_metadata({})
    assert blob.get_blob_properties().metadata == {}


def test_bad_metadata(container: ContainerClient) -> None:
    blob = container.upload_blob("blob", b"content")
    with refused(400, "InvalidMetadata") as error:
        blob.set_blob_metadata({"1x": "y"})
    assert error.details["name"] == "1x"
    with refused(400, "MetadataTooLarge"):
        blob.set_blob_metadata({"x": "y" * 8192})
    with refused(400, "InvalidMetadata"):
        container.upload_blob("other", b"", metadata={"with-dash": "y"})


# Deletion and missing blobs


def test_delete(container: ContainerClient) -> None:
    blob = container.upload_blob("blob", b"content")
    answer = ResponseRecorder()
    blob.delete_blob(raw_response_hook=answer)
    assert answer.status == 202
    assert answer.headers["x-ms-delete-type-permanent"] == "true"
    with refused(404, "BlobNotFound"):
        blob.delete_blob()


def test_a_missing_blob(container: ContainerClient) -> None:
    blob = container.get_blob_client("missing")
    assert not blob.exists()
    with refused(404, "BlobNotFound") as error:
        blob.download_blob()
    assert "The specified blob does not exist." in error.message
    with refused(404, "BlobNotFound"):
        blob.get_blob_properties()
    with refused(404, "BlobNotFound"):
        blob.set_blob_metadata({"a": "b"})
    with refused(404, "BlobNotFound"):
        blob.set_http_headers(ContentSettings(content_type="text/plain"))


def test_lease_ids_on_blobs_without_leases(container: ContainerClient) -> None:
    blob = container.upload_blob("blob", b"content")
    other = "11111111-2222-3333-4444-555555555555"
    with refused(412, "LeaseNotPresentWithBlobOperation"):
        blob.upload_blob(b"new", overwrite=True, lease=BlobLeaseClient(blob, other))
    with refused(412, "LeaseNotPresentWithBlobOperation"):
        blob.download_blob(lease=other)
    with refused(412, "LeaseNotPresentWithBlobOperation"):
        blob.delete_blob(lease=other)
