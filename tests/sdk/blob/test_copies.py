"""Copies of blobs of this server: Copy Blob, Copy Blob From URL, Abort Copy Blob, Incremental Copy
Blob."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.storage.blob import (
    BlobBlock,
    BlobClient,
    BlobSasPermissions,
    BlobType,
    ContainerClient,
    ContentSettings,
    PublicAccess,
    StandardBlobTier,
    generate_blob_sas,
)

from tests.sdk.blob.clients import blob_service
from tests.sdk.harness import ResponseRecorder, refused, with_headers
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, Server, unique

LARGE = bytes(range(256)) * 8_000
LARGE_MD5 = hashlib.md5(LARGE, usedforsecurity=False).digest()
OTHER_ETAG = '"0x8D0000000000001"'
FORBIDDEN = "OperationNotAllowedOnIncrementalCopyBlob"


@pytest.fixture
def source(container: ContainerClient) -> BlobClient:
    settings = ContentSettings("text/plain", None, "de", "inline", "no-cache")
    return container.upload_blob(
        "source", LARGE, metadata={"Its": "own"}, content_settings=settings
    )


@pytest.fixture
def copy(container: ContainerClient) -> BlobClient:
    return container.get_blob_client("copy")


def signed(blob: BlobClient, *, account: str = ACCOUNT, key: str = KEY, **permissions: bool) -> str:
    """Returns the URL of a blob with a token to read it."""
    token = generate_blob_sas(
        account,
        blob.container_name,
        blob.blob_name,
        account_key=key,
        permission=BlobSasPermissions(read=True, **permissions),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    return f"{blob.url}{'&' if '?' in blob.url else '?'}{token}"


def at(blob: BlobClient, snapshot: str) -> BlobClient:
    account = blob.url.split(f"/{blob.container_name}/", 1)[0]
    return BlobClient(
        account, blob.container_name, blob.blob_name, snapshot, blob.credential, retry_total=0
    )


def read(blob: BlobClient) -> bytes:
    return blob.download_blob().readall()


# Copy Blob


def test_a_copy_has_the_content_and_properties_of_its_source(
    source: BlobClient, copy: BlobClient
) -> None:
    answer = ResponseRecorder()
    result = copy.start_copy_from_url(source.url, raw_response_hook=answer)
    assert (answer.status, result["copy_status"]) == (202, "success")
    assert len(str(result["copy_id"])) == 36
    shown, of_source = copy.get_blob_properties(), source.get_blob_properties()
    assert result["etag"] == shown.etag
    assert result["last_modified"] == shown.last_modified
    assert read(copy) == LARGE
    assert dict(shown.content_settings) == dict(of_source.content_settings)
    assert bytes(shown.content_settings.content_md5 or b"") == LARGE_MD5
    assert shown.metadata == {"Its": "own"}
    assert shown.copy.id == result["copy_id"]
    assert (shown.copy.status, shown.copy.source) == ("success", source.url)
    assert shown.copy.progress == f"{len(LARGE)}/{len(LARGE)}"
    completed = shown.copy.completion_time
    assert completed is not None
    assert abs(datetime.now(UTC) - completed) < timedelta(minutes=1)
    assert not shown.copy.incremental_copy
    source.upload_blob(b"other", overwrite=True)
    source.delete_blob()
    assert read(copy) == LARGE


def test_the_request_overrides_properties_of_the_source(
    source: BlobClient, copy: BlobClient
) -> None:
    tier, tags = StandardBlobTier.COOL, {"tag": "value"}
    copy.start_copy_from_url(source.url, {"a": "b"}, standard_blob_tier=tier, tags=tags)
    shown = copy.get_blob_properties()
    assert (shown.metadata, shown.blob_tier) == ({"a": "b"}, "Cool")
    assert copy.get_blob_tags() == tags
    copy.start_copy_from_url(source.url)
    again = copy.get_blob_properties()
    assert (again.metadata, again.blob_tier_inferred) == ({"Its": "own"}, True)
    assert copy.get_blob_tags() == {}


def test_blocks_are_copied(container: ContainerClient, copy: BlobClient) -> None:
    source = container.get_blob_client("blocks")
    for block in ("1", "2"):
        source.stage_block(block, block.encode() * 5)
    source.commit_block_list([BlobBlock("1"), BlobBlock("2")])
    source.stage_block("3", b"three")
    copy.stage_block("9", b"nine")
    copy.start_copy_from_url(source.url)
    committed, uncommitted = copy.get_block_list("all")
    assert [block.id for block in committed] == ["1", "2"]
    assert uncommitted == []
    assert read(copy) == b"1111122222"


def test_onto_itself_and_from_a_snapshot(source: BlobClient) -> None:
    snapshot = at(source, str(source.create_snapshot()["snapshot"]))
    source.start_copy_from_url(source.url, {"new": "1"}, standard_blob_tier=StandardBlobTier.COOL)
    shown = source.get_blob_properties()
    assert (shown.metadata, shown.blob_tier) == ({"new": "1"}, "Cool")
    assert read(source) == LARGE
    source.upload_blob(b"other", overwrite=True)
    source.start_copy_from_url(snapshot.url)
    assert read(source) == LARGE
    assert source.get_blob_properties().metadata == {"Its": "own"}
    assert source.get_blob_properties().copy.source == snapshot.url
    assert read(snapshot) == LARGE


def test_page_blobs(container: ContainerClient, copy: BlobClient) -> None:
    source = container.get_blob_client("pages")
    source.create_page_blob(4096, sequence_number=7)
    source.upload_page(b"a" * 512, 1024, 512)
    copy.start_copy_from_url(source.url)
    source.upload_page(b"b" * 512, 1024, 512)
    shown = copy.get_blob_properties()
    assert (shown.blob_type, shown.size) == (BlobType.PAGEBLOB, 4096)
    assert shown.page_blob_sequence_number == 7
    assert read(copy) == bytes(1024) + b"a" * 512 + bytes(2560)
    copy.upload_page(b"c" * 512, 0, 512)
    assert read(source) == bytes(1024) + b"b" * 512 + bytes(2560)
    assert read(copy)[:1536] == b"c" * 512 + bytes(512) + b"a" * 512


def test_append_blobs(container: ContainerClient, copy: BlobClient) -> None:
    source = container.get_blob_client("appends")
    source.create_append_blob()
    source.append_block(b"one")
    source.append_block(b"two")
    copy.start_copy_from_url(source.url)
    assert copy.get_blob_properties().append_blob_committed_block_count == 2
    copy.append_block(b"three")
    source.append_block(b"four")
    assert (read(copy), read(source)) == (b"onetwothree", b"onetwofour")
    sealed = container.get_blob_client("sealed")
    sealed.start_copy_from_url(source.url, seal_destination_blob=True)
    assert sealed.get_blob_properties().is_append_blob_sealed
    with refused(409, "BlobIsSealed"):
        sealed.append_block(b"more")
    still, opened = container.get_blob_client("still"), container.get_blob_client("opened")
    still.start_copy_from_url(sealed.url)
    assert still.get_blob_properties().is_append_blob_sealed
    opened.start_copy_from_url(sealed.url, seal_destination_blob=False)
    opened.append_block(b"more")


def test_kinds_must_agree(container: ContainerClient, source: BlobClient) -> None:
    page = container.get_blob_client("page")
    page.create_page_blob(512)
    with refused(409, "InvalidBlobType"):
        page.start_copy_from_url(source.url)
    with refused(409, "InvalidBlobType"):
        source.start_copy_from_url(page.url)


# Preconditions


def test_conditions_of_both_ends(source: BlobClient, copy: BlobClient) -> None:
    copy.upload_blob(b"old")
    etag, differs = source.get_blob_properties().etag, MatchConditions.IfNotModified
    with refused(412, "SourceConditionNotMet"):
        copy.start_copy_from_url(source.url, source_etag=OTHER_ETAG, source_match_condition=differs)
    past = datetime.now(UTC) - timedelta(hours=1)
    with refused(412, "SourceConditionNotMet"):
        copy.start_copy_from_url(source.url, source_if_unmodified_since=past)
    with refused(412, "ConditionNotMet"):
        copy.start_copy_from_url(source.url, etag=OTHER_ETAG, match_condition=differs)
    with refused(409, "BlobAlreadyExists"):
        copy.start_copy_from_url(source.url, match_condition=MatchConditions.IfMissing)
    assert read(copy) == b"old"
    copy.start_copy_from_url(
        source.url,
        source_etag=etag,
        source_match_condition=differs,
        etag=copy.get_blob_properties().etag,
        match_condition=differs,
    )
    assert read(copy) == LARGE


def test_tags_of_both_ends(source: BlobClient, copy: BlobClient) -> None:
    source.set_blob_tags({"a": "b"})
    copy.upload_blob(b"old", tags={"c": "d"})
    with refused(412, "ConditionNotMet"):
        copy.start_copy_from_url(source.url, source_if_tags_match_condition="\"a\"='x'")
    with refused(412, "ConditionNotMet"):
        copy.start_copy_from_url(source.url, if_tags_match_condition="\"c\"='x'")
    copy.start_copy_from_url(
        source.url,
        source_if_tags_match_condition="\"a\"='b'",
        if_tags_match_condition="\"c\"='d'",
    )
    assert read(copy) == LARGE


def test_leases_of_both_ends(source: BlobClient, copy: BlobClient) -> None:
    copy.upload_blob(b"old")
    source.acquire_lease()
    lease = copy.acquire_lease(15)
    with refused(412, "LeaseIdMissing"):
        copy.start_copy_from_url(source.url)
    with refused(412, "InfiniteLeaseDurationRequired"):
        copy.start_copy_from_url(source.url, destination_lease=lease)
    lease = copy.acquire_lease(-1, lease.id)
    copy.start_copy_from_url(source.url, destination_lease=lease)
    assert read(copy) == LARGE
    assert copy.get_blob_properties().lease.state == "leased"


def test_missing_sources(container: ContainerClient, copy: BlobClient) -> None:
    with refused(404, "BlobNotFound"):
        copy.start_copy_from_url(container.get_blob_client("missing").url)
    nowhere = copy.url.replace(container.container_name, "nowhere")
    with refused(404, "ContainerNotFound"):
        copy.start_copy_from_url(nowhere)
    with refused(400, "InvalidHeaderValue"):
        copy.start_copy_from_url("no address")
    with refused(403, "CannotVerifyCopySource"):
        copy.start_copy_from_url("http://127.0.0.2:1/other")
    assert not copy.exists()


def test_a_snapshot_is_no_destination(source: BlobClient) -> None:
    snapshot = at(source, str(source.create_snapshot()["snapshot"]))
    with refused(400, "InvalidQueryParameterValue"):
        snapshot.start_copy_from_url(source.url)
    source_range = with_headers(**{"x-ms-source-range": "bytes=0-9"})
    with refused(400, "UnsupportedHeader"):
        source.start_copy_from_url(source.url, raw_request_hook=source_range)


def test_sources_of_another_account_need_a_token(
    server: Server, container: ContainerClient, copy: BlobClient
) -> None:
    with blob_service(server, SECOND_ACCOUNT, SECOND_KEYS[0]) as service:
        theirs = service.create_container(unique())
        blob = theirs.upload_blob("blob", b"theirs")
        with refused(401, "CannotVerifyCopySource"):
            copy.start_copy_from_url(blob.url)
        address = signed(blob, account=SECOND_ACCOUNT, key=SECOND_KEYS[0])
        copy.start_copy_from_url(address)
        assert read(copy) == b"theirs"
        # The token is not in the copy source.
        assert copy.get_blob_properties().copy.source == blob.url
        theirs.set_container_access_policy({}, public_access=PublicAccess.BLOB)
        copy.start_copy_from_url(blob.url)
        theirs.delete_container()


def test_a_token_for_the_destination(source: BlobClient, copy: BlobClient) -> None:
    def holder(**letters: bool) -> BlobClient:
        token = generate_blob_sas(
            ACCOUNT,
            copy.container_name,
            copy.blob_name,
            account_key=KEY,
            permission=BlobSasPermissions(**letters),
            expiry=datetime.now(UTC) + timedelta(hours=1),
        )
        return BlobClient.from_blob_url(copy.url, token, retry_total=0)

    with refused(403, "AuthorizationPermissionMismatch"):
        holder(read=True).start_copy_from_url(signed(source))
    # The token of the destination does not authorize the source.
    with refused(401, "CannotVerifyCopySource"):
        holder(create=True).start_copy_from_url(source.url)
    holder(create=True).start_copy_from_url(signed(source))
    with refused(403, "UnauthorizedBlobOverwrite"):
        holder(create=True).start_copy_from_url(signed(source))
    holder(write=True).start_copy_from_url(signed(source))
    assert read(copy) == LARGE


def test_listings_contain_copy_properties(
    container: ContainerClient, source: BlobClient, copy: BlobClient
) -> None:
    result = copy.start_copy_from_url(source.url)
    listed = {blob.name: blob for blob in container.list_blobs(include=["copy"])}
    assert listed["copy"].copy.id == result["copy_id"]
    assert listed["copy"].copy.source == source.url
    assert listed["copy"].copy.progress == f"{len(LARGE)}/{len(LARGE)}"
    assert listed["source"].copy.id is None


# Copy Blob From URL


def sync(copy: BlobClient, address: str, **options: Any) -> ResponseRecorder:
    answer = ResponseRecorder()
    result = copy.start_copy_from_url(
        address, requires_sync=True, raw_response_hook=answer, **options
    )
    assert (answer.status, result["copy_status"]) == (202, "success")
    return answer


def test_copy_blob_from_url(source: BlobClient, copy: BlobClient) -> None:
    answer = sync(copy, signed(source))
    assert "content-md5" not in answer.headers
    assert answer.headers["x-ms-content-crc64"]
    uploaded = ResponseRecorder()
    source.upload_blob(LARGE, overwrite=True, raw_response_hook=uploaded)
    assert answer.headers["x-ms-content-crc64"] == uploaded.headers["x-ms-content-crc64"]
    assert read(copy) == LARGE
    assert copy.get_blob_properties().copy.status == "success"
    right = base64.b64encode(LARGE_MD5).decode()
    hook = with_headers(**{"x-ms-source-content-md5": right})
    answer = sync(copy, signed(source), raw_request_hook=hook)
    assert answer.headers["content-md5"] == right
    wrong = base64.b64encode(bytes(16)).decode()
    with refused(400, "Md5Mismatch"):
        sync(
            copy,
            signed(source),
            raw_request_hook=with_headers(**{"x-ms-source-content-md5": wrong}),
        )


def test_copy_blob_from_url_with_a_token(source: BlobClient, copy: BlobClient) -> None:
    with refused(401, "CannotVerifyCopySource"):
        sync(copy, source.url)
    missing = source.url.replace("/source", "/missing")
    with refused(404, "CannotVerifyCopySource"):
        sync(copy, signed(BlobClient.from_blob_url(missing, source.credential)))
    assert not copy.exists()


def test_tags_are_copied_if_asked_for(source: BlobClient, copy: BlobClient) -> None:
    tags = {"a": "b", "c": "d"}
    source.set_blob_tags(tags)
    sync(copy, signed(source, tag=True), tags="COPY")
    assert copy.get_blob_tags() == tags
    sync(copy, signed(source), tags={"e": "f"})
    assert copy.get_blob_tags() == {"e": "f"}
    sync(copy, signed(source))
    assert copy.get_blob_tags() == {}
    with refused(403, "CannotVerifyCopySource"):
        sync(copy, signed(source), tags="COPY")


def test_a_finite_lease_is_enough(source: BlobClient, copy: BlobClient) -> None:
    copy.upload_blob(b"old")
    lease = copy.acquire_lease(15)
    with refused(412, "LeaseIdMissing"):
        sync(copy, signed(source))
    sync(copy, signed(source), destination_lease=lease)
    assert read(copy) == LARGE


def test_copy_blob_from_url_has_a_size_limit(container: ContainerClient, copy: BlobClient) -> None:
    source = container.get_blob_client("pages")
    source.create_page_blob((256 << 20) + 512)
    with refused(409, "CannotVerifyCopySource") as error:
        sync(copy, signed(source))
    assert "exceeds the maximum permissible limit (256MB)" in error.message
    source.resize_blob(256 << 10)
    sync(copy, signed(source))
    assert copy.get_blob_properties().size == 256 << 10


# Abort Copy


def test_nothing_to_abort(source: BlobClient, copy: BlobClient) -> None:
    result = copy.start_copy_from_url(source.url)
    copy_id = str(result["copy_id"])
    with refused(409, "NoPendingCopyOperation"):
        copy.abort_copy(copy_id)
    with refused(400, "InvalidQueryParameterValue"):
        copy.abort_copy("nonsense")
    missing = BlobClient.from_blob_url(f"{copy.url}x", copy.credential, retry_total=0)
    with refused(404, "BlobNotFound"):
        missing.abort_copy(copy_id)


# Incremental Copy


def step(copy: BlobClient, address: str) -> str:
    result = copy.start_copy_from_url(address, incremental_copy=True)
    assert result["copy_status"] == "pending"
    shown = copy.get_blob_properties()
    assert (shown.copy.status, shown.copy.incremental_copy) == ("success", True)
    assert shown.copy.id == result["copy_id"]
    return str(shown.copy.destination_snapshot)


def test_incremental_copies(container: ContainerClient, copy: BlobClient) -> None:
    source = container.get_blob_client("pages")
    source.create_page_blob(1024)
    moments, taken = [], []
    for letter in (b"a", b"b"):
        source.upload_page(letter * 512, 0, 512)
        moments.append(at(source, str(source.create_snapshot()["snapshot"])))
        taken.append(step(copy, signed(moments[-1])))
    assert taken[0] < taken[1]
    assert read(at(copy, taken[0]))[:512] == b"a" * 512
    assert read(at(copy, taken[1]))[:512] == b"b" * 512
    with refused(409, "IncrementalCopyOfEarlierSnapshotNotAllowed"):
        step(copy, signed(moments[0]))
    with refused(409, "IncrementalCopySourceMustBeSnapshot"):
        step(copy, signed(source))
    other = container.get_blob_client("other")
    other.create_page_blob(512)
    with refused(409, "IncrementalCopyBlobMismatch"):
        step(copy, signed(at(other, str(other.create_snapshot()["snapshot"]))))
    forbidden: list[Callable[[], Any]] = [
        lambda: read(copy),
        lambda: copy.upload_page(b"x" * 512, 0, 512),
        lambda: copy.set_blob_metadata({"a": "b"}),
        lambda: copy.set_http_headers(ContentSettings("text/plain")),
        copy.create_snapshot,
        copy.acquire_lease,
        lambda: copy.create_page_blob(512),
        lambda: copy.start_copy_from_url(source.url),
        lambda: other.start_copy_from_url(copy.url),
    ]
    for call in forbidden:
        with refused(409, FORBIDDEN):
            call()
    at(copy, taken[0]).delete_blob()
    other.start_copy_from_url(at(copy, taken[1]).url)
    assert read(other)[:512] == b"b" * 512
    copy.delete_blob(delete_snapshots="include")
    assert not copy.exists()
